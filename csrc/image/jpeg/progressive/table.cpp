#include "image/jpeg/progressive/table.h"

#include <algorithm>
#include <iterator>

namespace fastloader {
namespace {

constexpr unsigned kMostZeros = 15;
constexpr unsigned kMostFirstBits = 15;  // of a first coefficient's difference

}  // namespace

ScanKind kind_of(const ProgressiveScan& scan) {
  if (scan.first == 0) return scan.refines() ? ScanKind::kFirstRefine : ScanKind::kFirst;
  return scan.refines() ? ScanKind::kBandRefine : ScanKind::kBand;
}

bool ProgressiveTable::make(const HuffmanSpec& spec, ScanKind kind, unsigned low) {
  kind_ = kind;
  low_ = low;
  if (!code_.set(spec)) return false;
  const Entry elsewhere(0, kNotHere, 0, 0, false);
  Entry* to = entries_;
  const auto fill = [&](Entry entry, size_t count) {
    std::fill_n(to, count, entry.is_symbol() ? entry : elsewhere);
    to += count;
  };
  for (size_t i = 0; i < code_.count(); ++i) {
    const HuffmanCode::Symbol symbol{code_.length(i), code_.symbol(i)};
    if (kind == ScanKind::kFirst && symbol.value > kMostFirstBits) return false;
    if (symbol.length > kBits) continue;
    const size_t count = size_t{1} << (kBits - symbol.length);
    const unsigned taken = symbol.length + (symbol.value & 15u);
    if (!has_value(symbol.value)) {
      fill(entry_of(symbol, false), count);
    } else if (symbol.length == kBits || (kind == ScanKind::kBand && taken > kMostTaken)) {
      fill(elsewhere, count);
    } else {
      // The bit behind the code says whether the value is negative.
      fill(entry_of(symbol, true), count / 2);
      fill(entry_of(symbol, false), count / 2);
    }
  }
  std::fill(to, std::end(entries_), elsewhere);
  return true;
}

/// Whether a number follows that may be negative. A coefficient that a refinement makes is 1 or -1,
/// which is not in the entry.
bool ProgressiveTable::has_value(uint8_t symbol) const {
  return kind_ != ScanKind::kBandRefine && (symbol & 15) != 0;
}

ProgressiveTable::Entry ProgressiveTable::entry_of(HuffmanCode::Symbol symbol,
                                                   bool negative) const {
  const unsigned length = symbol.length;
  const unsigned zeros = symbol.value >> 4;
  const unsigned bits = symbol.value & 15;
  const int least = negative ? 1 - (1 << bits) : 0;
  if (kind_ == ScanKind::kFirst) return {length + bits, 0, bits, least, false};
  const bool refine = kind_ == ScanKind::kBandRefine;
  const int hot = 1 << zeros;
  if (bits == 0 && zeros == kMostZeros) return {length, zeros + 1, 0, refine ? hot : 0, false};
  if (bits == 0) {
    // The band ends in 1 << zeros blocks, and in as many more as the number says. This one, which
    // has begun, counts among them to a refinement only.
    return {length + zeros, kBandEnds, zeros, refine ? 0 : (1 << zeros) - 1, false};
  }
  const bool possible = refine ? bits == 1 : bits + low_ <= kMostCoefficientBits;
  return possible ? Entry(length + bits, zeros + 1, bits, refine ? hot : least, true) : Entry();
}

ProgressiveTable::Entry ProgressiveTable::find(uint64_t bits) const {
  const HuffmanCode::Symbol symbol = code_.find(static_cast<uint32_t>(bits >> 48));
  if (symbol.length == 0) return {};
  const bool negative = has_value(symbol.value) && (bits << symbol.length) >> 63 == 0;
  return entry_of(symbol, negative);
}

}  // namespace fastloader
