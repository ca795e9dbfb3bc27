#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jpeg_coefficients.h"
#include "jpeg_huffman.h"
#include "jpeg_odd_traits.h"
#include "jpeg_scan_coder.h"
#include "jpeg_scans.h"

namespace fastloader::testing {

/// Writes coefficients as a JPEG of one of the many forms that the standard allows, drawn from
/// `random`, and notes which form that was.
class OddJpegWriter {
 public:
  OddJpegWriter(const JpegCoefficients& picture, Random& random, OddTraits& traits)
      : picture_(picture), random_(random), traits_(traits), planes_(picture.planes.size()) {}

  std::vector<uint8_t> write() {
    choose_process();
    choose_restarts();
    choose_numbers();
    fills_ = random_.chance(30);
    out_ = {0xff, 0xd8};
    write_head();
    for (size_t i = 0; i < script_.size(); ++i) write_scan(script_[i], i == 0);
    traits_.add_if(marker(0xd9), OddTrait::kFillBeforeEnd);
    if (random_.chance(10)) {
      traits_.add(OddTrait::kTrailing);
      for (uint32_t n = random_.between(1, 40); n > 0; --n) {
        out_.push_back(static_cast<uint8_t>(random_.next()));
      }
    }
    return out_;
  }

 private:
  using Bytes = std::vector<uint8_t>;

  // Choices.

  void choose_process() {
    bool large = false;
    for (const JpegPlane& plane : picture_.planes) {
      for (const uint16_t factor : plane.quantization) large = large || factor > 255;
    }
    traits_.add_if(large, OddTrait::kLargeFactors);
    progressive_ = random_.chance(45);
    baseline_ = !progressive_ && !large && random_.chance(50);
    traits_.add(progressive_ ? OddTrait::kProgressive
                : baseline_  ? OddTrait::kBaseline
                             : OddTrait::kExtended);
    if (progressive_) {
      choose_progression();
      return;
    }
    const bool several = planes_ > 1 && random_.chance(15);
    traits_.add_if(several, OddTrait::kSeveralScans);
    script_ = sequential_script(planes_, several, random_);
  }

  void choose_progression() {
    const bool usual = random_.chance(35);
    traits_.add(usual ? OddTrait::kUsualScript : OddTrait::kRandomScript);
    script_ = usual ? usual_script(planes_) : RandomScript(planes_, random_).make();
    constexpr uint32_t kRuns[] = {0x7fff, 0x7fff, 1, 2, 5};
    const uint32_t longest = kRuns[random_.below(5)];
    for (JpegScan& scan : script_) {
      scan.longest_run = longest;
      const bool dc = scan.first == 0;
      traits_.add_if(longest == 1 && !dc, OddTrait::kNoRuns);
      traits_.add_if(scan.high > 0, dc ? OddTrait::kEarlyDc : OddTrait::kRefined);
      traits_.add_if(dc && scan.planes.size() < planes_, OddTrait::kDcApart);
    }
  }

  uint32_t mcus_across(const JpegScan& scan) const {
    return scan.planes.size() == 1 ? picture_.planes[scan.planes[0]].across : picture_.mcus_across;
  }

  uint32_t mcus_down(const JpegScan& scan) const {
    return scan.planes.size() == 1 ? picture_.planes[scan.planes[0]].down : picture_.mcus_down;
  }

  void choose_restarts() {
    if (random_.chance(40)) return;
    constexpr uint32_t kPrimes[] = {2, 3, 5, 7, 11, 13, 31};
    const uint32_t kind = random_.below(5);
    const uint32_t prime = kPrimes[random_.below(7)];
    const uint32_t rows = random_.between(1, 2);
    constexpr OddTrait kKinds[] = {OddTrait::kEveryMcu, OddTrait::kPrimeInterval,
                                   OddTrait::kRowInterval, OddTrait::kBeyondInterval,
                                   OddTrait::kZeroInterval};
    traits_.add(kKinds[kind]);
    announces_zero_ = kind == 4;
    for (JpegScan& scan : script_) {
      const uint32_t mcus = mcus_across(scan) * mcus_down(scan);
      const uint32_t intervals[] = {1, prime, rows * mcus_across(scan),
                                    random_.chance(30) ? 65535 : mcus + random_.below(3), 0};
      scan.restart = intervals[kind];
    }
  }

  void choose_numbers() {
    jfif_ = random_.chance(70);
    adobe_ = random_.chance(25);
    traits_.add(jfif_ ? OddTrait::kJfif : OddTrait::kNoJfif);
    traits_.add_if(adobe_, OddTrait::kAdobe);
    // Without either, libjpeg takes the colours from the components' numbers.
    if ((jfif_ || adobe_ || planes_ == 1) && random_.chance(30)) {
      traits_.add(OddTrait::kOtherNumbers);
      const auto first = static_cast<uint8_t>(random_.below(256));
      const auto step = static_cast<uint8_t>(random_.between(1, 80));
      for (size_t p = 0; p < planes_; ++p) numbers_[p] = static_cast<uint8_t>(first + p * step);
      if (random_.chance(40)) numbers_ = {0, 1, 2};
    }
    const uint32_t tables = baseline_ ? 2 : 4;
    const bool usual = random_.chance(40);
    std::array<uint8_t, 4> free{0, 1, 2, 3};
    for (size_t i = 4; i > 1; --i) {
      std::swap(free[i - 1], free[random_.below(static_cast<uint32_t>(i))]);
    }
    for (size_t p = 0; p < planes_; ++p) {
      quantization_[p] = usual ? static_cast<uint8_t>(p) : free[p];
      // Components of the same factors may share a table.
      for (size_t other = 0; other < p; ++other) {
        if (picture_.planes[other].quantization != picture_.planes[p].quantization) continue;
        if (random_.chance(70)) quantization_[p] = quantization_[other];
      }
    }
    for (JpegScan& scan : script_) {
      for (size_t i = 0; i < scan.planes.size(); ++i) {
        const auto color = static_cast<uint8_t>(scan.planes[i] == 0 ? 0 : 1);
        scan.dc[i] = usual ? color : static_cast<uint8_t>(random_.below(tables));
        scan.ac[i] = usual ? color : static_cast<uint8_t>(random_.below(tables));
        traits_.add_if(scan.dc[i] > 1 || scan.ac[i] > 1, OddTrait::kHighNumbers);
      }
    }
    // 0 for standard tables, 1 for optimal ones, 2 for others, 3 for all of them.
    huffman_ = random_.below(4);
  }

  // Segments.

  /// Returns whether fill bytes stand before it.
  bool marker(uint8_t code) {
    uint32_t fill = fills_ ? random_.below(4) : 0;
    if (fills_ && random_.chance(2)) fill = random_.between(100, 700);
    out_.insert(out_.end(), fill, 0xff);
    traits_.add_if(fill > 0, OddTrait::kFill);
    out_.push_back(0xff);
    out_.push_back(code);
    return fill > 0;
  }

  void segment(uint8_t code, const Bytes& body) {
    marker(code);
    const size_t length = body.size() + 2;
    out_.push_back(static_cast<uint8_t>(length >> 8));
    out_.push_back(static_cast<uint8_t>(length));
    out_.insert(out_.end(), body.begin(), body.end());
  }

  static Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

  /// One that says nothing about the pixels, or none.
  bool add_segment() {
    using std::string_literals::operator""s;
    const auto any = static_cast<uint8_t>(random_.chance(30) ? 0xfe : random_.between(0xe1, 0xef));
    switch (random_.below(10)) {
      case 0:
        segment(0xe1, bytes_of("Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\1\0\0\0\0\0\0\0"s));
        traits_.add(OddTrait::kExif);
        return true;
      case 1:
        segment(0xe0, bytes_of(random_.chance(50) ? "JFXX\0\x13\1\1\0\0\0"s : "AVI1\0\0"s));
        traits_.add(OddTrait::kForeignApp0);
        return true;
      case 2:
        segment(any, {});
        traits_.add(OddTrait::kEmptySegment);
        return true;
      case 3:
        if (!random_.chance(25)) return false;
        // As a thumbnail has them: markers that mean nothing here.
        segment(any, Bytes(65533, static_cast<uint8_t>(random_.chance(50) ? 0xff : 0xd9)));
        traits_.add(OddTrait::kLongestSegment);
        return true;
      case 4:
        segment(0xfe, bytes_of("made up\0 \xff\xd9 \xff\xda"s));
        traits_.add(OddTrait::kComment);
        return true;
      default:
        return false;
    }
  }

  void write_head() {
    using std::string_literals::operator""s;
    if (random_.chance(20)) add_segment();
    if (jfif_) segment(0xe0, bytes_of("JFIF\0\1\1\0\0\1\0\1\0\0"s));
    if (random_.chance(40)) add_segment();
    if (adobe_) {
      segment(0xee, bytes_of(planes_ == 1 ? "Adobe\0\x64\0\0\0\0\0"s : "Adobe\0\x64\0\0\0\0\1"s));
    }
    const bool behind = random_.chance(30);
    traits_.add_if(behind, OddTrait::kTablesBehind);
    if (!behind) write_quantization();
    if (random_.chance(40)) add_segment();
    Bytes frame{8,
                static_cast<uint8_t>(picture_.height >> 8),
                static_cast<uint8_t>(picture_.height),
                static_cast<uint8_t>(picture_.width >> 8),
                static_cast<uint8_t>(picture_.width),
                static_cast<uint8_t>(planes_)};
    for (size_t p = 0; p < planes_; ++p) {
      const JpegSampling& sampling = picture_.planes[p].sampling;
      frame.push_back(numbers_[p]);
      frame.push_back(static_cast<uint8_t>(sampling.horizontal << 4 | sampling.vertical));
      frame.push_back(quantization_[p]);
    }
    segment(progressive_ ? 0xc2 : baseline_ ? 0xc0 : 0xc1, frame);
    if (behind) write_quantization();
    if (announces_zero_) segment(0xdd, {0, 0});
  }

  // Tables. A piece is what several of may share a segment.

  void write_pieces(uint8_t code, const std::vector<Bytes>& pieces) {
    const bool merged = pieces.size() > 1 && random_.chance(50);
    traits_.add_if(merged, OddTrait::kMergedTables);
    Bytes all;
    for (const Bytes& piece : pieces) {
      if (merged) {
        all.insert(all.end(), piece.begin(), piece.end());
      } else {
        segment(code, piece);
      }
    }
    if (merged) segment(code, all);
  }

  Bytes quantization_piece(const JpegQuantization& factors, uint8_t number) {
    const bool large = *std::max_element(factors.begin(), factors.end()) > 255;
    const bool deep = large || (!baseline_ && random_.chance(30));
    traits_.add_if(deep, OddTrait::kDeepQuantization);
    Bytes piece{static_cast<uint8_t>((deep ? 0x10 : 0) | number)};
    for (const uint16_t factor : factors) {
      if (deep) piece.push_back(static_cast<uint8_t>(factor >> 8));
      piece.push_back(static_cast<uint8_t>(factor));
    }
    return piece;
  }

  void write_quantization() {
    std::vector<Bytes> pieces;
    for (size_t p = 0; p < planes_; ++p) {
      const auto end = quantization_.begin() + static_cast<std::ptrdiff_t>(p);
      if (std::find(quantization_.begin(), end, quantization_[p]) != end) continue;
      if (random_.chance(15)) {
        JpegQuantization wrong;
        wrong.fill(static_cast<uint16_t>(random_.between(1, 255)));
        pieces.push_back(quantization_piece(wrong, quantization_[p]));
        traits_.add(OddTrait::kRedefined);
      }
      pieces.push_back(quantization_piece(picture_.planes[p].quantization, quantization_[p]));
    }
    write_pieces(0xdb, pieces);
  }

  static Bytes huffman_piece(const HuffmanTable& table, size_t number) {
    const size_t low = number % kFirstAcTable;
    Bytes piece{static_cast<uint8_t>(number < kFirstAcTable ? low : 0x10 | low)};
    piece.insert(piece.end(), table.counts.begin() + 1, table.counts.end());
    piece.insert(piece.end(), table.symbols.begin(), table.symbols.end());
    return piece;
  }

  /// What the standard allows for pictures of 8 bits.
  std::vector<uint8_t> legal_symbols(const JpegScan& scan, bool ac) const {
    std::vector<uint8_t> symbols;
    if (!ac) {
      for (uint8_t length = 0; length <= 11; ++length) symbols.push_back(length);
      return symbols;
    }
    const unsigned longest = scan.high > 0 ? 1 : 10;
    for (unsigned zeros = 0; zeros < 16; ++zeros) {
      if (progressive_ || zeros == 0 || zeros == 15) {
        symbols.push_back(static_cast<uint8_t>(zeros << 4));
      }
      for (unsigned length = 1; length <= longest; ++length) {
        symbols.push_back(static_cast<uint8_t>(zeros << 4 | length));
      }
    }
    return symbols;
  }

  static bool covers(const HuffmanTable& table, const SymbolCounts& counts) {
    for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
      if (counts[symbol] == 0) continue;
      if (std::find(table.symbols.begin(), table.symbols.end(), symbol) == table.symbols.end()) {
        return false;
      }
    }
    return true;
  }

  HuffmanTable strange_table(const SymbolCounts& counts, const JpegScan& scan, bool ac) {
    constexpr HuffmanShape kShapes[] = {HuffmanShape::kBalanced, HuffmanShape::kChain,
                                        HuffmanShape::kRandom};
    constexpr HuffmanOrder kOrders[] = {HuffmanOrder::kCommonFirst, HuffmanOrder::kRareFirst,
                                        HuffmanOrder::kAny};
    const HuffmanShape shape = kShapes[random_.below(3)];
    size_t symbols = 0;
    for (const uint32_t count : counts) symbols += count > 0 ? 1 : 0;
    // A chain of all lengths has just as many codes.
    const bool all_lengths = shape == HuffmanShape::kChain && random_.chance(50);
    const bool more = random_.chance(60);
    std::vector<uint8_t> unused;
    for (const uint8_t symbol : legal_symbols(scan, ac)) {
      if (counts[symbol] > 0) continue;
      if (all_lengths ? symbols < kLongestCode : more && random_.chance(40)) {
        unused.push_back(symbol);
        ++symbols;
      }
    }
    return make_table(counts, shape, kOrders[random_.below(3)], unused, random_);
  }

  HuffmanTable choose_table(const SymbolCounts& counts, const JpegScan& scan, size_t number) {
    const bool ac = number >= kFirstAcTable;
    const uint32_t kind = huffman_ == 3 ? random_.below(3) : huffman_;
    const HuffmanTable standard = standard_table(ac, random_.chance(50) ? 1 : 0);
    if (kind == 0 && covers(standard, counts)) {
      traits_.add(OddTrait::kStandardHuffman);
      return standard;
    }
    if (kind == 2) return strange_table(counts, scan, ac);
    traits_.add(OddTrait::kOptimalHuffman);
    return make_table(counts, HuffmanShape::kOptimal, HuffmanOrder::kCommonFirst, {}, random_);
  }

  void note_codes(const HuffmanTable& table, const SymbolCounts& counts) {
    const HuffmanCodes codes = codes_of(table);
    const auto commonest =
        static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
    size_t used = 0;
    for (const uint32_t count : counts) used += count > 0 ? 1 : 0;
    size_t longest = kLongestCode;
    while (table.counts[longest] == 0) --longest;
    traits_.add_if(table.counts[1] > 0, OddTrait::kOneBit);
    traits_.add_if(table.has_all_lengths(), OddTrait::kAllLengths);
    traits_.add_if(used < table.symbols.size(), OddTrait::kUnusedCodes);
    const bool rare = used > 1 && codes[commonest].length == longest;
    traits_.add_if(rare && longest > table.symbols.size() / 2, OddTrait::kRareFirst);
    traits_.add_if(codes[commonest].length == kLongestCode, OddTrait::kSixteenBits);
  }

  void write_huffman(const std::array<SymbolCounts, kHuffmanTables>& counts, const JpegScan& scan) {
    std::vector<Bytes> pieces;
    for (size_t number = 0; number < kHuffmanTables; ++number) {
      const SymbolCounts& each = counts[number];
      if (std::all_of(each.begin(), each.end(), [](uint32_t count) { return count == 0; })) {
        continue;
      }
      std::optional<HuffmanTable>& table = tables_[number];
      if (table && covers(*table, each) && random_.chance(50)) {
        traits_.add(OddTrait::kKeptTables);
      } else {
        if (random_.chance(10)) {
          pieces.push_back(
              huffman_piece(strange_table(each, scan, number >= kFirstAcTable), number));
          traits_.add(OddTrait::kRedefined);
        }
        table = choose_table(each, scan, number);
        pieces.push_back(huffman_piece(*table, number));
      }
      note_codes(*table, each);
    }
    write_pieces(0xc4, pieces);
  }

  // Scans.

  void write_scan(const JpegScan& from, bool first) {
    JpegScan scan = from;
    scan.progressive = progressive_;
    const std::vector<JpegToken> tokens = JpegScanCoder(picture_, scan).code();
    std::array<SymbolCounts, kHuffmanTables> counts{};
    for (const JpegToken& token : tokens) {
      if (token.kind != JpegToken::Kind::kSymbol) continue;
      ++counts[token.table][token.symbol];
      traits_.add_if(
          scan.first > 0 && token.symbol > 0 && token.symbol < 0xf0 && (token.symbol & 15) == 0,
          OddTrait::kLongRuns);
    }
    const bool announce = scan.restart != restart_;
    const bool announce_early = random_.chance(50);
    if (announce && announce_early) announce_restarts(scan.restart);
    write_huffman(counts, scan);
    if (announce && !announce_early) announce_restarts(scan.restart);
    if (random_.chance(first ? 40 : 10) && add_segment() && !first) {
      traits_.add(OddTrait::kSegmentBetween);
    }
    Bytes header{static_cast<uint8_t>(scan.planes.size())};
    for (size_t i = 0; i < scan.planes.size(); ++i) {
      header.push_back(numbers_[scan.planes[i]]);
      header.push_back(static_cast<uint8_t>(scan.dc[i] << 4 | scan.ac[i]));
    }
    header.push_back(scan.first);
    header.push_back(scan.last);
    header.push_back(static_cast<uint8_t>(scan.high << 4 | scan.low));
    segment(0xda, header);
    write_tokens(tokens);
  }

  void announce_restarts(uint32_t interval) {
    segment(0xdd, {static_cast<uint8_t>(interval >> 8), static_cast<uint8_t>(interval)});
    restart_ = interval;
  }

  void write_tokens(const std::vector<JpegToken>& tokens) {
    std::array<HuffmanCodes, kHuffmanTables> codes{};
    for (size_t number = 0; number < kHuffmanTables; ++number) {
      if (tables_[number]) codes[number] = codes_of(*tables_[number]);
    }
    JpegBits bits(out_);
    uint32_t restarts = 0;
    for (const JpegToken& token : tokens) {
      if (token.kind == JpegToken::Kind::kRestart) {
        bits.finish();
        traits_.add_if(marker(static_cast<uint8_t>(0xd0 + restarts++ % 8)),
                       OddTrait::kFillBeforeRestart);
        traits_.add(OddTrait::kRestarts);
        continue;
      }
      if (token.kind == JpegToken::Kind::kSymbol) {
        const HuffmanCode& code = codes[token.table][token.symbol];
        bits.put(code.bits, code.length);
      }
      bits.put(token.bits, token.count);
    }
    bits.finish();
  }

  const JpegCoefficients& picture_;
  Random& random_;
  OddTraits& traits_;
  size_t planes_;
  Bytes out_;
  std::vector<JpegScan> script_;
  bool progressive_ = false;
  bool baseline_ = false;
  bool jfif_ = true;
  bool adobe_ = false;
  bool fills_ = false;
  bool announces_zero_ = false;
  uint32_t huffman_ = 0;
  uint32_t restart_ = 0;  // as announced last
  std::array<uint8_t, 3> numbers_{1, 2, 3};
  std::array<uint8_t, 3> quantization_{};
  std::array<std::optional<HuffmanTable>, kHuffmanTables> tables_;  // as a decoder has them
};

}  // namespace fastloader::testing
