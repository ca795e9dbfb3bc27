#include <cstring>

#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/kernels/filter.h"

namespace fastloader {

void sharpness(float factor, Canvas& canvas) {
  const ImageSize size = canvas.size();
  if (size.height < 3 || size.width < 3 || factor == 1.0f) return;
  const size_t stride = canvas.row_bytes();
  uint8_t* out = canvas.other(size);
  const uint8_t* in = canvas.pixels();
  std::memcpy(out, in, stride);
  for (size_t y = 1; y + 1 < size.height; ++y) {
    canvas.throw_if_stopped();
    const uint8_t* row = in + y * stride;
    uint8_t* to = out + y * stride;
    std::memcpy(to, row, Canvas::kRgb);
    canvas.isa().filter->sharpen(row - stride, row, row + stride, stride - 2 * Canvas::kRgb, factor,
                                 to + Canvas::kRgb);
    std::memcpy(to + stride - Canvas::kRgb, row + stride - Canvas::kRgb, Canvas::kRgb);
  }
  const size_t last = (size.height - 1) * stride;
  std::memcpy(out + last, in + last, stride);
  canvas.turn();
}

}  // namespace fastloader
