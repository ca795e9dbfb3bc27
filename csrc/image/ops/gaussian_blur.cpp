#include "image/ops/gaussian_blur.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

/// Half of a kernel, which is symmetric: the weight of the pixel itself, and then those of the two
/// pixels at each distance.
struct Kernel {
  float weights[kMaxGaussianKernel / 2 + 1];
  size_t reach = 0;  // the last distance
};

/// Weights at the end that together could not change the last bit of a sum are left out: a wide
/// kernel of a small sigma is mostly these.
void set_kernel(Kernel& kernel, size_t edge, double sigma) {
  constexpr double kNegligible = 1.0 / (1 << 28);
  double weights[kMaxGaussianKernel / 2 + 1];
  double sum = 0;
  const size_t half = edge / 2;
  for (size_t i = 0; i <= half; ++i) {
    const double distance = static_cast<double>(i) / sigma;
    weights[i] = std::exp(-0.5 * distance * distance);
    sum += i == 0 ? weights[i] : 2 * weights[i];
  }
  kernel.reach = half;
  for (double left_out = 0; kernel.reach > 0; --kernel.reach) {
    left_out += 2 * weights[kernel.reach] / sum;
    if (left_out > kNegligible) break;
  }
  for (size_t i = 0; i <= kernel.reach; ++i) {
    kernel.weights[i] = static_cast<float>(weights[i] / sum);
  }
}

// Both passes work in blocks of bytes that a compiler can keep in vector registers. Each value is
// summed on its own, from the pixel itself outwards, so the results do not depend on that.
constexpr size_t kBlock = 16;

/// Where the rows lie that a row of the result is made of.
struct Rows {
  const uint8_t* middle;
  const uint8_t* above[kMaxGaussianKernel / 2 + 1];  // by distance
  const uint8_t* below[kMaxGaussianKernel / 2 + 1];
};

template <size_t kCount>
void sum_down(const Rows& rows, size_t x, const Kernel& kernel, float* out) {
  float sums[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    sums[i] = kernel.weights[0] * static_cast<float>(rows.middle[x + i]);
  }
  for (size_t k = 1; k <= kernel.reach; ++k) {
    const uint8_t* above = rows.above[k] + x;
    const uint8_t* below = rows.below[k] + x;
    const float weight = kernel.weights[k];
    for (size_t i = 0; i < kCount; ++i) {
      sums[i] += weight * static_cast<float>(above[i] + below[i]);
    }
  }
  for (size_t i = 0; i < kCount; ++i) out[i] = sums[i];
}

template <size_t kCount>
void sum_along(const float* middle, const Kernel& kernel, uint8_t* out) {
  float sums[kCount];
  for (size_t i = 0; i < kCount; ++i) sums[i] = kernel.weights[0] * middle[i];
  for (size_t k = 1; k <= kernel.reach; ++k) {
    const float* left = middle - k * Canvas::kRgb;
    const float* right = middle + k * Canvas::kRgb;
    const float weight = kernel.weights[k];
    for (size_t i = 0; i < kCount; ++i) sums[i] += weight * (left[i] + right[i]);
  }
  // At 2 to the 23rd, the last bit of a float is 1: the addition rounds, half to even as torch.
  uint32_t bits[kCount];
  for (size_t i = 0; i < kCount; ++i) sums[i] += 8388608.0f;
  std::memcpy(bits, sums, sizeof(bits));
  for (size_t i = 0; i < kCount; ++i) out[i] = static_cast<uint8_t>(bits[i]);
}

/// A position before the first is as far behind it, and the same at the other end. Unsigned: what
/// is before the first has wrapped around.
size_t mirrored(size_t position, size_t count) {
  if (position < count) return position;
  const size_t behind = position - (count - 1);
  return behind < count ? count - 1 - behind : size_t{0} - position;
}

}  // namespace

void require_mirror(size_t kernel_x, size_t kernel_y, const ImageSize& size) {
  if (kernel_x / 2 < size.width && kernel_y / 2 < size.height) return;
  throw InvalidArgument("gaussian_blur with a kernel of " + std::to_string(kernel_x) + "x" +
                        std::to_string(kernel_y) + " pixels needs a picture larger than " +
                        std::to_string(kernel_x / 2) + "x" + std::to_string(kernel_y / 2) +
                        ", not one of " + std::to_string(size.width) + "x" +
                        std::to_string(size.height));
}

void gaussian_blur(size_t kernel_x, size_t kernel_y, double sigma_x, double sigma_y,
                   Canvas& canvas) {
  const ImageSize size = canvas.size();
  require_mirror(kernel_x, kernel_y, size);
  Kernel along;
  Kernel down;
  set_kernel(along, kernel_x, sigma_x);
  set_kernel(down, kernel_y, sigma_y);
  const size_t stride = canvas.row_bytes();
  const size_t margin = along.reach * Canvas::kRgb;
  uint8_t* out = canvas.other(size);
  const uint8_t* in = canvas.pixels();
  auto* const line =
      reinterpret_cast<float*>(canvas.scratch((stride + 2 * margin) * sizeof(float))) + margin;
  Rows rows;
  for (size_t y = 0; y < size.height; ++y) {
    rows.middle = in + y * stride;
    for (size_t k = 1; k <= down.reach; ++k) {
      rows.above[k] = in + mirrored(y - k, size.height) * stride;
      rows.below[k] = in + mirrored(y + k, size.height) * stride;
    }
    size_t x = 0;
    for (; x + kBlock <= stride; x += kBlock) sum_down<kBlock>(rows, x, down, line + x);
    for (; x < stride; ++x) sum_down<1>(rows, x, down, line + x);

    float* const end = line + stride;
    for (size_t k = 1; k <= along.reach; ++k) {
      const size_t at = k * Canvas::kRgb;
      std::copy(line + at, line + at + Canvas::kRgb, line - at);
      std::copy(end - at - Canvas::kRgb, end - at, end + at - Canvas::kRgb);
    }
    uint8_t* to = out + y * stride;
    for (x = 0; x + kBlock <= stride; x += kBlock) sum_along<kBlock>(line + x, along, to + x);
    for (; x < stride; ++x) sum_along<1>(line + x, along, to + x);
  }
  canvas.turn();
}

}  // namespace fastloader
