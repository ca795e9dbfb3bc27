#include "image/ops/sharpness.h"

#include <cstring>

namespace fastloader {
namespace {

/// Makes kCount bytes. With a count that the compiler knows it uses vector registers.
///
/// Pillow smooths in float: 0.5 + n / 13, rounded down, n being 8 neighbours and 5 times the pixel.
/// That sum is never nearer to a whole number than 1 / 26, which is far more than float's errors,
/// so it is (n + 6) / 13 in integers; 5042 / 65536 is close enough to 1 / 13 for any such n.
///
/// The blend is Pillow's, in float as there. It clips for factors beyond 0 to 1 only; for those
/// between, there is nothing to clip.
template <size_t kCount>
void sharpen(const uint8_t* above, const uint8_t* row, const uint8_t* below, float factor,
             uint8_t* out) {
  uint16_t smooth[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const int corners = above[i] + above[i + 6] + below[i] + below[i + 6];
    const int sides = above[i + 3] + below[i + 3] + row[i] + row[i + 6];
    smooth[i] = static_cast<uint16_t>(corners + sides + 5 * row[i + 3] + 6);
  }
  for (uint16_t& value : smooth) value = static_cast<uint16_t>((value * 5042u) >> 16);
  float blended[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const int difference = row[i + 3] - smooth[i];
    blended[i] = static_cast<float>(smooth[i]) + factor * static_cast<float>(difference);
  }
  for (float& value : blended) {
    value = value < 0.0f ? 0.0f : value;
    value = value > 255.0f ? 255.0f : value;
  }
  for (size_t i = 0; i < kCount; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(blended[i]));
  }
}

/// The pixels of a row between the first and the last, which have `bytes` bytes. Pointers are to
/// the pixel before.
void sharpen_row(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes,
                 float factor, uint8_t* out) {
  constexpr size_t kBlock = 32;
  size_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) {
    sharpen<kBlock>(above + i, row + i, below + i, factor, out + i);
  }
  if (i < bytes && i != 0) {  // a block that ends with the row: some bytes come out once more
    i = bytes - kBlock;
    return sharpen<kBlock>(above + i, row + i, below + i, factor, out + i);
  }
  for (; i < bytes; ++i) sharpen<1>(above + i, row + i, below + i, factor, out + i);
}

}  // namespace

void sharpness(Canvas& canvas, double factor) {
  const ImageSize size = canvas.size();
  const auto alpha = static_cast<float>(factor);
  if (size.height < 3 || size.width < 3 || alpha == 1.0f) return;
  const size_t stride = canvas.row_bytes();
  uint8_t* out = canvas.other(size);
  const uint8_t* in = canvas.pixels();
  std::memcpy(out, in, stride);
  for (size_t y = 1; y + 1 < size.height; ++y) {
    const uint8_t* row = in + y * stride;
    uint8_t* to = out + y * stride;
    std::memcpy(to, row, Canvas::kRgb);
    sharpen_row(row - stride, row, row + stride, stride - 2 * Canvas::kRgb, alpha,
                to + Canvas::kRgb);
    std::memcpy(to + stride - Canvas::kRgb, row + stride - Canvas::kRgb, Canvas::kRgb);
  }
  const size_t last = (size.height - 1) * stride;
  std::memcpy(out + last, in + last, stride);
  canvas.turn();
}

}  // namespace fastloader
