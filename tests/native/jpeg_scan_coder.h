#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "jpeg_coefficients.h"
#include "jpeg_huffman.h"
#include "jpeg_scans.h"

// Coefficients to a scan's bytes, in two steps: symbols first, which can be counted, then bits with
// whatever table somebody made of the counts. Annexes F and G of ITU T.81, written down plainly.

namespace fastloader::testing {

struct JpegToken {
  enum class Kind : uint8_t {
    kSymbol,   ///< and the bits behind it
    kBits,     ///< alone
    kRestart,  ///< a marker
  };
  Kind kind = Kind::kSymbol;
  uint8_t table = 0;  ///< 0 to 3, and 4 more for AC
  uint8_t symbol = 0;
  uint8_t count = 0;  ///< of bits
  uint16_t bits = 0;
};

constexpr size_t kHuffmanTables = 8;
constexpr size_t kFirstAcTable = 4;

class JpegScanCoder {
 public:
  JpegScanCoder(const JpegCoefficients& picture, const JpegScan& scan)
      : picture_(picture), scan_(scan) {}

  std::vector<JpegToken> code() {
    const bool alone = scan_.planes.size() == 1;
    const JpegPlane& first = picture_.planes[scan_.planes[0]];
    const uint32_t across = alone ? first.across : picture_.mcus_across;
    const uint32_t mcus = across * (alone ? first.down : picture_.mcus_down);
    for (uint32_t mcu = 0; mcu < mcus; ++mcu) {
      if (scan_.restart > 0 && mcu > 0 && mcu % scan_.restart == 0) restart();
      const uint32_t x = mcu % across;
      const uint32_t y = mcu / across;
      for (size_t i = 0; i < scan_.planes.size(); ++i) {
        const JpegPlane& plane = picture_.planes[scan_.planes[i]];
        const uint32_t wide = alone ? 1 : plane.sampling.horizontal;
        const uint32_t high = alone ? 1 : plane.sampling.vertical;
        for (uint32_t part = 0; part < wide * high; ++part) {
          add(i, plane.at(x * wide + part % wide, y * high + part / wide));
        }
      }
    }
    end_run();
    return tokens_;
  }

 private:
  using Kind = JpegToken::Kind;

  static uint8_t length_of(unsigned value) {
    uint8_t length = 0;
    for (; value > 0; value >>= 1) ++length;
    return length;
  }

  void symbol(uint8_t table, unsigned symbol, unsigned count, int bits) {
    tokens_.push_back({Kind::kSymbol, table, static_cast<uint8_t>(symbol),
                       static_cast<uint8_t>(count),
                       static_cast<uint16_t>(static_cast<unsigned>(bits) & ((1u << count) - 1))});
  }

  void bit(std::vector<JpegToken>& to, bool set) {
    to.push_back({Kind::kBits, 0, 0, 1, static_cast<uint16_t>(set ? 1 : 0)});
  }

  void append(std::vector<JpegToken>& corrections) {
    tokens_.insert(tokens_.end(), corrections.begin(), corrections.end());
    corrections.clear();
  }

  void restart() {
    end_run();
    tokens_.push_back({Kind::kRestart, 0, 0, 0, 0});
    before_.fill(0);
  }

  void add(size_t i, const JpegCoefficientBlock& block) {
    ac_table_ = static_cast<uint8_t>(kFirstAcTable + scan_.ac[i]);
    if (scan_.first == 0 && scan_.high > 0) {
      bit(tokens_, ((block[0] >> scan_.low) & 1) != 0);
      return;
    }
    if (scan_.first == 0) {
      const int value = block[0] >> scan_.low;  // rounds down, unlike the others
      const int difference = value - before_[i];
      before_[i] = value;
      const uint8_t length = length_of(static_cast<unsigned>(std::abs(difference)));
      symbol(scan_.dc[i], length, length, difference < 0 ? difference - 1 : difference);
    }
    if (scan_.last == 0) return;
    if (scan_.high == 0) {
      add_band(block);
    } else {
      refine_band(block);
    }
  }

  size_t first_ac() const { return scan_.first == 0 ? 1 : scan_.first; }

  void add_band(const JpegCoefficientBlock& block) {
    unsigned zeros = 0;
    for (size_t k = first_ac(); k <= scan_.last; ++k) {
      const unsigned magnitude = static_cast<unsigned>(std::abs(block[k])) >> scan_.low;
      if (magnitude == 0) {
        ++zeros;
        continue;
      }
      end_run();
      for (; zeros > 15; zeros -= 16) symbol(ac_table_, 0xf0, 0, 0);
      const uint8_t length = length_of(magnitude);
      const int value = static_cast<int>(magnitude);
      symbol(ac_table_, zeros << 4 | length, length, block[k] < 0 ? -value - 1 : value);
      zeros = 0;
    }
    if (zeros > 0) add_to_run();
  }

  void refine_band(const JpegCoefficientBlock& block) {
    size_t last_new = 0;  // behind it only corrections come
    const auto magnitude_at = [&](size_t k) {
      return static_cast<unsigned>(std::abs(block[k])) >> scan_.low;
    };
    for (size_t k = scan_.first; k <= scan_.last; ++k) {
      if (magnitude_at(k) == 1) last_new = k;
    }
    unsigned zeros = 0;
    std::vector<JpegToken> corrections;
    for (size_t k = scan_.first; k <= scan_.last; ++k) {
      const unsigned magnitude = magnitude_at(k);
      if (magnitude == 0) {
        ++zeros;
        continue;
      }
      for (; zeros > 15 && k <= last_new; zeros -= 16) {
        end_run();
        symbol(ac_table_, 0xf0, 0, 0);
        append(corrections);
      }
      if (magnitude > 1) {
        bit(corrections, (magnitude & 1) != 0);
        continue;
      }
      end_run();
      symbol(ac_table_, zeros << 4 | 1, 1, block[k] < 0 ? 0 : 1);
      append(corrections);
      zeros = 0;
    }
    if (zeros == 0 && corrections.empty()) return;
    run_corrections_.insert(run_corrections_.end(), corrections.begin(), corrections.end());
    add_to_run();
  }

  void add_to_run() {
    if (++run_ >= scan_.longest_run) end_run();
  }

  void end_run() {
    if (run_ == 0) return;
    const auto count = static_cast<unsigned>(length_of(run_) - 1);
    symbol(ac_table_, count << 4, count, static_cast<int>(run_));
    append(run_corrections_);
    run_ = 0;
  }

  const JpegCoefficients& picture_;
  const JpegScan& scan_;
  std::vector<JpegToken> tokens_;
  std::array<int, 4> before_{};  // the first coefficient of each plane's last block
  uint8_t ac_table_ = 0;
  uint32_t run_ = 0;  // blocks that have ended, and nobody has said so
  std::vector<JpegToken> run_corrections_;
};

/// Bits behind each other; a byte of ones is followed by a zero, since it would begin a marker.
class JpegBits {
 public:
  explicit JpegBits(std::vector<uint8_t>& out) : out_(out) {}

  void put(unsigned bits, unsigned count) {
    while (count > 0) {
      --count;
      byte_ = static_cast<uint8_t>(2u * byte_ + ((bits >> count) & 1));
      if (++filled_ == 8) flush();
    }
  }

  /// Fills the last byte with ones.
  void finish() {
    while (filled_ > 0) put(1, 1);
  }

 private:
  void flush() {
    out_.push_back(byte_);
    if (byte_ == 0xff) out_.push_back(0);
    filled_ = 0;
  }

  std::vector<uint8_t>& out_;
  uint8_t byte_ = 0;
  unsigned filled_ = 0;
};

}  // namespace fastloader::testing
