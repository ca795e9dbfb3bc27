#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/kernels/filter.h"

namespace fastloader {
namespace {

static_assert(kMaxGaussianKernel / 2 == HalfKernel::kMostReach);

/// Weights at the end that together could not change the last bit of a sum are left out: a wide
/// kernel of a small sigma is mostly these.
void set_kernel(HalfKernel& kernel, size_t edge, double sigma) {
  constexpr double kNegligible = 1.0 / (1 << 28);
  double weights[HalfKernel::kMostReach + 1];
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
  HalfKernel along;
  HalfKernel down;
  set_kernel(along, kernel_x, sigma_x);
  set_kernel(down, kernel_y, sigma_y);
  const size_t stride = canvas.row_bytes();
  const size_t margin = along.reach * Canvas::kRgb;
  uint8_t* out = canvas.other(size);
  const uint8_t* in = canvas.pixels();
  auto* const line =
      reinterpret_cast<float*>(canvas.scratch((stride + 2 * margin) * sizeof(float))) + margin;
  RowsAround rows;
  const FilterKernels& kernels = *canvas.isa().filter;
  for (size_t y = 0; y < size.height; ++y) {
    canvas.throw_if_stopped();
    rows.middle = in + y * stride;
    for (size_t k = 1; k <= down.reach; ++k) {
      rows.above[k] = in + mirrored(y - k, size.height) * stride;
      rows.below[k] = in + mirrored(y + k, size.height) * stride;
    }
    kernels.blur_down(rows, down, stride, line);

    float* const end = line + stride;
    for (size_t k = 1; k <= along.reach; ++k) {
      const size_t at = k * Canvas::kRgb;
      std::copy(line + at, line + at + Canvas::kRgb, line - at);
      std::copy(end - at - Canvas::kRgb, end - at, end + at - Canvas::kRgb);
    }
    kernels.blur_along(line, along, stride, out + y * stride);
  }
  canvas.turn();
}

}  // namespace fastloader
