#include "image/jpeg/scan_script.h"

#include <algorithm>

namespace fastloader {
namespace {

constexpr uint8_t kNone = 0xff;
constexpr uint8_t kHighestBit = 13;  // libjpeg's limit

bool is_possible(const ProgressiveScan& scan) {
  if (scan.low > kHighestBit || scan.last >= kJpegBlock) return false;
  if (scan.high != 0 && scan.high != scan.low + 1) return false;
  if (scan.first == 0) return scan.last == 0;
  return scan.first <= scan.last && scan.components == 1;
}

}  // namespace

ScanScript::ScanScript() {
  for (auto& bits : lowest_bit_) bits.fill(kNone);
}

bool ScanScript::add(const ProgressiveScan& scan) {
  if (!is_possible(scan)) return false;
  const uint8_t before = scan.high == 0 ? kNone : scan.high;
  for (size_t i = 0; i < scan.components; ++i) {
    auto& bits = lowest_bit_[scan.component[i]];
    if (scan.first > 0 && bits[0] == kNone) return false;
    for (size_t k = scan.first; k <= scan.last; ++k) {
      if (bits[k] != before) return false;
      bits[k] = scan.low;
    }
  }
  return true;
}

bool ScanScript::complete(size_t components) const {
  for (size_t c = 0; c < components; ++c) {
    for (const uint8_t bit : lowest_bit_[c]) {
      if (bit != 0) return false;
    }
  }
  return true;
}

}  // namespace fastloader
