#include "image/ops/sharpness.h"

#include <cstring>

#include "image/ops/blend.h"

namespace fastloader {
namespace {

/// Bytes that are made at a time: a number that the compiler knows, so that it uses vector
/// registers.
constexpr size_t kBlock = 32;
static_assert(kBlock % FloatLanes::kCount == 0);

/// The pixels on the left and on the right of a block, too, are read.
constexpr size_t kRead = kBlock + 2 * Canvas::kRgb;

/// Makes a block of bytes. Pointers are to the pixel before it.
///
/// Pillow smooths in float: 0.5 + n / 13, rounded down, n being 8 neighbours and 5 times the pixel.
/// That sum is never nearer to a whole number than 1 / 26, which is far more than float's errors,
/// so it is (n + 6) / 13 in integers; 5042 / 65536 is close enough to 1 / 13 for any such n.
void sharpen(const uint8_t* above, const uint8_t* row, const uint8_t* below,
             const FloatLanes& factor, uint8_t* out) {
  uint16_t sums[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    const int corners = above[i] + above[i + 6] + below[i] + below[i + 6];
    const int sides = above[i + 3] + below[i + 3] + row[i] + row[i + 6];
    sums[i] = static_cast<uint16_t>(corners + sides + 5 * row[i + 3] + 6);
  }
  uint8_t smooth[kBlock];
  for (size_t i = 0; i < kBlock; ++i) smooth[i] = static_cast<uint8_t>((sums[i] * 5042u) >> 16);
  for (size_t i = 0; i < kBlock; i += FloatLanes::kCount) {
    blend(FloatLanes::of(smooth + i), FloatLanes::of(row + i + 3), factor).to(out + i);
  }
}

/// Less than a block.
void sharpen_some(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes,
                  const FloatLanes& factor, uint8_t* out) {
  uint8_t rows[3][kRead] = {};
  uint8_t made[kBlock];
  const size_t read = bytes + 2 * Canvas::kRgb;
  std::memcpy(rows[0], above, read);
  std::memcpy(rows[1], row, read);
  std::memcpy(rows[2], below, read);
  sharpen(rows[0], rows[1], rows[2], factor, made);
  std::memcpy(out, made, bytes);
}

/// The pixels of a row between the first and the last, which have `bytes` bytes. Pointers are to
/// the pixel before.
void sharpen_row(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes,
                 const FloatLanes& factor, uint8_t* out) {
  if (bytes < kBlock) return sharpen_some(above, row, below, bytes, factor, out);
  size_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) sharpen(above + i, row + i, below + i, factor, out + i);
  if (i == bytes) return;
  i = bytes - kBlock;  // a block that ends with the row: some bytes come out once more
  sharpen(above + i, row + i, below + i, factor, out + i);
}

}  // namespace

void sharpness(float factor, Canvas& canvas) {
  const ImageSize size = canvas.size();
  if (size.height < 3 || size.width < 3 || factor == 1.0f) return;
  const FloatLanes factors = FloatLanes::all(factor);
  const size_t stride = canvas.row_bytes();
  uint8_t* out = canvas.other(size);
  const uint8_t* in = canvas.pixels();
  std::memcpy(out, in, stride);
  for (size_t y = 1; y + 1 < size.height; ++y) {
    const uint8_t* row = in + y * stride;
    uint8_t* to = out + y * stride;
    std::memcpy(to, row, Canvas::kRgb);
    sharpen_row(row - stride, row, row + stride, stride - 2 * Canvas::kRgb, factors,
                to + Canvas::kRgb);
    std::memcpy(to + stride - Canvas::kRgb, row + stride - Canvas::kRgb, Canvas::kRgb);
  }
  const size_t last = (size.height - 1) * stride;
  std::memcpy(out + last, in + last, stride);
  canvas.turn();
}

}  // namespace fastloader
