#include <algorithm>

#include "image/resize/kernels.h"

namespace fastloader {
namespace {

template <size_t kChannels>
void horizontal_scalar(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  const ResizeAxis& axis = plan.axis();
  const size_t width = axis.out();
  for (size_t x = 0; x < width; ++x) {
    const uint8_t* from = in + axis.first(x) * kChannels;
    const int32_t* coefficients = axis.coefficients(x);
    const size_t count = axis.count(x);
    int32_t sums[kChannels];
    for (int32_t& sum : sums) sum = kResizeHalf;
    for (size_t k = 0; k < count; ++k) {
      for (size_t c = 0; c < kChannels; ++c) sums[c] += from[k * kChannels + c] * coefficients[k];
    }
    uint8_t* to = out + (plan.mirrored() ? width - 1 - x : x) * kChannels;
    for (size_t c = 0; c < kChannels; ++c) to[c] = round_resize_sum(sums[c]);
  }
}

void horizontal(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  if (plan.channels() == 1) return horizontal_scalar<1>(plan, in, out);
  horizontal_scalar<3>(plan, in, out);
}

/// Works in blocks that a compiler can keep in vector registers of any kind.
void vertical(const uint8_t* const* rows, const uint32_t* words, size_t steps, size_t bytes,
              uint8_t* out) {
  constexpr size_t kBlock = 16;
  for (size_t x = 0; x < bytes; x += kBlock) {
    int32_t sums[kBlock];
    for (int32_t& sum : sums) sum = kResizeHalf;
    for (size_t k = 0; k < steps; ++k) {
      const uint8_t* from = rows[k] + x;
      const int32_t coefficient = static_cast<int32_t>(words[k]);
      for (size_t i = 0; i < kBlock; ++i) sums[i] += from[i] * coefficient;
    }
    const size_t count = std::min(kBlock, bytes - x);
    for (size_t i = 0; i < count; ++i) out[x + i] = round_resize_sum(sums[i]);
  }
}

}  // namespace

const ResizeKernels kResizeScalar = {TapPacking::kNone, horizontal, vertical};

}  // namespace fastloader
