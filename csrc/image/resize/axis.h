#pragma once

#include <cstddef>
#include <cstdint>

#include "image/resize/buffer.h"
#include "image/resize/resizer.h"

namespace fastloader {

/// Fixed point: a coefficient of 1 is 1 << 22. 8 bits of sample and 2 bits for sums beyond 1 (and
/// below 0) then fill 32 bits, so sums of products are exact in any order.
constexpr int kResizeBits = 22;
constexpr int32_t kResizeHalf = int32_t{1} << (kResizeBits - 1);

inline uint8_t round_resize_sum(int32_t sum_with_half) {
  const int32_t value = sum_with_half >> kResizeBits;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

struct AxisGeometry {
  size_t in = 0;
  float begin = 0;
  float end = 0;  // of the part of the input that is stretched over the output
  size_t out = 0;
  size_t first = 0;  // of the outputs that are made
  size_t count = 0;
  ResizeFilter filter = ResizeFilter::kBilinear;

  bool operator==(const AxisGeometry& other) const {
    return in == other.in && begin == other.begin && end == other.end && out == other.out &&
           first == other.first && count == other.count && filter == other.filter;
  }

  /// Whether a pass along this axis is more than a copy, by Pillow's rule.
  bool changes_anything() const {
    return out != in || begin != 0 || end != static_cast<float>(out);
  }
};

/// Taps of a row of coefficients come in multiples of this, the surplus being zero.
constexpr size_t kTapMultiple = 4;

/// The definition of the filters: which input samples make each output sample, and how much of
/// each. Both are counted from the first that is made or needed. Double arithmetic in Pillow's
/// order of operations, so that every rounding is the same.
class ResizeAxis {
 public:
  /// Returns whether anything changed.
  bool set(const AxisGeometry& geometry);

  /// Outputs that are made.
  size_t out() const { return geometry_.count; }
  /// Inputs that they need, and where the first of these lies.
  size_t in() const { return in_; }
  size_t in_first() const { return in_first_; }

  size_t first(size_t out) const { return first_.data()[out]; }
  size_t count(size_t out) const { return count_.data()[out]; }
  size_t end(size_t out) const { return first(out) + count(out); }
  size_t max_count() const { return max_count_; }

  /// stride() coefficients, of which those from count(out) on are zero.
  const int32_t* coefficients(size_t out) const { return coefficients_.data() + out * stride_; }
  size_t stride() const { return stride_; }

  size_t bytes() const {
    return first_.bytes() + count_.bytes() + weights_.bytes() + coefficients_.bytes();
  }

 private:
  template <class Filter>
  void compute(const Filter& filter);

  bool ready_ = false;
  AxisGeometry geometry_;
  size_t in_first_ = 0;
  size_t in_ = 0;
  size_t max_count_ = 0;
  size_t stride_ = 0;
  GrowingBuffer<uint32_t> first_;
  GrowingBuffer<uint32_t> count_;
  GrowingBuffer<double> weights_;
  GrowingBuffer<int32_t> coefficients_;
};

}  // namespace fastloader
