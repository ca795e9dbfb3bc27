#include "image/ops/kernels/filter.h"

#include <cstring>

#include "image/ops/blend.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

// --- Gaussian blur ------------------------------------------------------------------------------

// Both passes work in blocks of bytes that a compiler can keep in vector registers. Each value is
// summed on its own, from the pixel itself outwards, so the results do not depend on that.
constexpr size_t kSums = 16;

template <size_t kCount>
void sum_down(const RowsAround& rows, size_t x, const HalfKernel& kernel, float* out) {
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
void sum_along(const float* middle, const HalfKernel& kernel, uint8_t* out) {
  float sums[kCount];
  for (size_t i = 0; i < kCount; ++i) sums[i] = kernel.weights[0] * middle[i];
  for (size_t k = 1; k <= kernel.reach; ++k) {
    const float* left = middle - k * kRgb;
    const float* right = middle + k * kRgb;
    const float weight = kernel.weights[k];
    for (size_t i = 0; i < kCount; ++i) sums[i] += weight * (left[i] + right[i]);
  }
  // At 2 to the 23rd, the last bit of a float is 1: the addition rounds, half to even as torch.
  uint32_t bits[kCount];
  for (size_t i = 0; i < kCount; ++i) sums[i] += 8388608.0f;
  std::memcpy(bits, sums, sizeof(bits));
  for (size_t i = 0; i < kCount; ++i) out[i] = static_cast<uint8_t>(bits[i]);
}

void blur_down(const RowsAround& rows, const HalfKernel& kernel, size_t bytes, float* out) {
  size_t x = 0;
  for (; x + kSums <= bytes; x += kSums) sum_down<kSums>(rows, x, kernel, out + x);
  for (; x < bytes; ++x) sum_down<1>(rows, x, kernel, out + x);
}

void blur_along(const float* middle, const HalfKernel& kernel, size_t bytes, uint8_t* out) {
  size_t x = 0;
  for (; x + kSums <= bytes; x += kSums) sum_along<kSums>(middle + x, kernel, out + x);
  for (; x < bytes; ++x) sum_along<1>(middle + x, kernel, out + x);
}

// --- sharpness ----------------------------------------------------------------------------------

/// Bytes that are made at a time: a number that the compiler knows, so that it uses vector
/// registers.
constexpr size_t kBlock = 32;
static_assert(kBlock % FloatLanes::kCount == 0);

/// The pixels on the left and on the right of a block, too, are read.
constexpr size_t kRead = kBlock + 2 * kRgb;

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
  const size_t read = bytes + 2 * kRgb;
  std::memcpy(rows[0], above, read);
  std::memcpy(rows[1], row, read);
  std::memcpy(rows[2], below, read);
  sharpen(rows[0], rows[1], rows[2], factor, made);
  std::memcpy(out, made, bytes);
}

void sharpen_row(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes,
                 float factor, uint8_t* out) {
  const FloatLanes factors = FloatLanes::all(factor);
  if (bytes < kBlock) return sharpen_some(above, row, below, bytes, factors, out);
  size_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) sharpen(above + i, row + i, below + i, factors, out + i);
  if (i == bytes) return;
  i = bytes - kBlock;  // a block that ends with the row: some bytes come out once more
  sharpen(above + i, row + i, below + i, factors, out + i);
}

}  // namespace

const FilterKernels kFilterScalar = {blur_down, blur_along, sharpen_row, box_pass_scalar};

}  // namespace fastloader
