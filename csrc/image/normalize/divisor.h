#pragma once

#include <cstdint>

#include "image/host_device.h"

namespace fastloader {

/// Divides numbers below 2^31 by one number, 1 to 2^31, without the twenty instructions that a GPU
/// takes for it.
///
/// With d <= 2^s < 2d and m = 2^(31+s) / d, rounded up, n * m / 2^(31+s) is too large by less than
/// n * d / (d * 2^(31+s)) < 1 / d, which does not reach the next whole number.
class Divisor {
 public:
  explicit Divisor(uint32_t value = 1) : value_(value) {
    while ((uint64_t{1} << (shift_ - 31)) < value) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + value - 1) / value);
  }

  FASTLOADER_HOST_DEVICE uint32_t value() const { return value_; }

  FASTLOADER_HOST_DEVICE uint32_t quotient(uint32_t number) const {
    return static_cast<uint32_t>((uint64_t{number} * multiplier_) >> shift_);
  }

 private:
  uint32_t value_;
  uint32_t multiplier_ = 0;
  uint32_t shift_ = 31;
};

}  // namespace fastloader
