#include "image/ops/kernels/filter.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

// --- Gaussian blur ------------------------------------------------------------------------------

/// Four registers of sums, which are on their way at the same time.
constexpr size_t kSums = 32;
constexpr size_t kLanes = 8;

/// A product and a sum, each of which rounds, as on every instruction set.
FASTLOADER_AVX2_INLINE __m256 plus(__m256 sum, __m256 weight, __m256 number) {
  return _mm256_add_ps(sum, _mm256_mul_ps(weight, number));
}

FASTLOADER_AVX2_INLINE __m256i wide(const uint8_t* bytes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

FASTLOADER_AVX2_INLINE __m256 floats(const uint8_t* bytes) {
  return _mm256_cvtepi32_ps(wide(bytes));
}

FASTLOADER_AVX2_INLINE __m256 floats(const uint8_t* above, const uint8_t* below) {
  return _mm256_cvtepi32_ps(_mm256_add_epi32(wide(above), wide(below)));
}

FASTLOADER_AVX2_INLINE void sum_down(const RowsAround& rows, size_t x, const HalfKernel& kernel,
                                     float* out) {
  const uint8_t* middle = rows.middle + x;
  const __m256 own = _mm256_set1_ps(kernel.weights[0]);
  __m256 a = _mm256_mul_ps(own, floats(middle));
  __m256 b = _mm256_mul_ps(own, floats(middle + kLanes));
  __m256 c = _mm256_mul_ps(own, floats(middle + 2 * kLanes));
  __m256 d = _mm256_mul_ps(own, floats(middle + 3 * kLanes));
  for (size_t k = 1; k <= kernel.reach; ++k) {
    const uint8_t* above = rows.above[k] + x;
    const uint8_t* below = rows.below[k] + x;
    const __m256 weight = _mm256_set1_ps(kernel.weights[k]);
    a = plus(a, weight, floats(above, below));
    b = plus(b, weight, floats(above + kLanes, below + kLanes));
    c = plus(c, weight, floats(above + 2 * kLanes, below + 2 * kLanes));
    d = plus(d, weight, floats(above + 3 * kLanes, below + 3 * kLanes));
  }
  _mm256_storeu_ps(out, a);
  _mm256_storeu_ps(out + kLanes, b);
  _mm256_storeu_ps(out + 2 * kLanes, c);
  _mm256_storeu_ps(out + 3 * kLanes, d);
}

FASTLOADER_AVX2_INLINE __m256 both(const float* left, const float* right) {
  return _mm256_add_ps(_mm256_loadu_ps(left), _mm256_loadu_ps(right));
}

/// At 2 to the 23rd, the last bit of a float is 1: the addition rounds.
FASTLOADER_AVX2_INLINE __m256i rounded(__m256 sum) {
  const __m256i bits = _mm256_castps_si256(_mm256_add_ps(sum, _mm256_set1_ps(8388608.0f)));
  return _mm256_and_si256(bits, _mm256_set1_epi32(255));
}

FASTLOADER_AVX2_INLINE void sum_along(const float* middle, const HalfKernel& kernel, uint8_t* out) {
  const __m256 own = _mm256_set1_ps(kernel.weights[0]);
  __m256 a = _mm256_mul_ps(own, _mm256_loadu_ps(middle));
  __m256 b = _mm256_mul_ps(own, _mm256_loadu_ps(middle + kLanes));
  __m256 c = _mm256_mul_ps(own, _mm256_loadu_ps(middle + 2 * kLanes));
  __m256 d = _mm256_mul_ps(own, _mm256_loadu_ps(middle + 3 * kLanes));
  for (size_t k = 1; k <= kernel.reach; ++k) {
    const float* left = middle - k * kRgb;
    const float* right = middle + k * kRgb;
    const __m256 weight = _mm256_set1_ps(kernel.weights[k]);
    a = plus(a, weight, both(left, right));
    b = plus(b, weight, both(left + kLanes, right + kLanes));
    c = plus(c, weight, both(left + 2 * kLanes, right + 2 * kLanes));
    d = plus(d, weight, both(left + 3 * kLanes, right + 3 * kLanes));
  }
  const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(rounded(a), rounded(b)),
                                             _mm256_packs_epi32(rounded(c), rounded(d)));
  // Packing works within 128 bits: puts the 4-byte groups back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(packed, order));
}

// Rows end with a block of their own, so that some of it comes out once more.

FASTLOADER_AVX2 void blur_down(const RowsAround& rows, const HalfKernel& kernel, size_t bytes,
                               float* out) {
  if (bytes < kSums) return kFilterScalar.blur_down(rows, kernel, bytes, out);
  size_t x = 0;
  for (; x + kSums <= bytes; x += kSums) sum_down(rows, x, kernel, out + x);
  if (x != bytes) sum_down(rows, bytes - kSums, kernel, out + bytes - kSums);
}

FASTLOADER_AVX2 void blur_along(const float* middle, const HalfKernel& kernel, size_t bytes,
                                uint8_t* out) {
  if (bytes < kSums) return kFilterScalar.blur_along(middle, kernel, bytes, out);
  size_t x = 0;
  for (; x + kSums <= bytes; x += kSums) sum_along(middle + x, kernel, out + x);
  if (x != bytes) sum_along(middle + bytes - kSums, kernel, out + bytes - kSums);
}

// --- sharpness ----------------------------------------------------------------------------------

constexpr size_t kBlock = 16;

/// 16 bytes as numbers of 16 bits.
FASTLOADER_AVX2_INLINE __m256i words(const uint8_t* bytes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

/// The sums of bytes two pixels apart.
FASTLOADER_AVX2_INLINE __m256i sides(const uint8_t* row) {
  return _mm256_add_epi16(words(row), words(row + 2 * kRgb));
}

FASTLOADER_AVX2_INLINE __m256i blend(__m256i first, __m256i second, __m256 factor) {
  const __m256 from = _mm256_cvtepi32_ps(first);
  const __m256 difference = _mm256_sub_ps(_mm256_cvtepi32_ps(second), from);
  return _mm256_cvttps_epi32(_mm256_min_ps(plus(from, factor, difference), _mm256_set1_ps(255)));
}

/// The arithmetic of the scalar kernel, whose comments say why it is this.
FASTLOADER_AVX2_INLINE void sharpen(const uint8_t* above, const uint8_t* row, const uint8_t* below,
                                    __m256 factor, uint8_t* out) {
  const __m256i own = words(row + kRgb);
  const __m256i outer = _mm256_add_epi16(
      _mm256_add_epi16(sides(above), sides(below)),
      _mm256_add_epi16(sides(row), _mm256_add_epi16(words(above + kRgb), words(below + kRgb))));
  const __m256i five = _mm256_add_epi16(_mm256_slli_epi16(own, 2), own);
  const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(outer, five), _mm256_set1_epi16(6));
  const __m256i smooth = _mm256_mulhi_epu16(sum, _mm256_set1_epi16(5042));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low =
      blend(_mm256_unpacklo_epi16(smooth, zero), _mm256_unpacklo_epi16(own, zero), factor);
  const __m256i high =
      blend(_mm256_unpackhi_epi16(smooth, zero), _mm256_unpackhi_epi16(own, zero), factor);
  const __m256i made = _mm256_packs_epi32(low, high);  // undoes what unpacking did to the order
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm_packus_epi16(_mm256_castsi256_si128(made), _mm256_extracti128_si256(made, 1)));
}

FASTLOADER_AVX2 void sharpen_row(const uint8_t* above, const uint8_t* row, const uint8_t* below,
                                 size_t bytes, float factor, uint8_t* out) {
  if (bytes < kBlock) return kFilterScalar.sharpen(above, row, below, bytes, factor, out);
  const __m256 factors = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) sharpen(above + i, row + i, below + i, factors, out + i);
  if (i == bytes) return;
  i = bytes - kBlock;
  sharpen(above + i, row + i, below + i, factors, out + i);
}

}  // namespace

const FilterKernels kFilterAvx2 = {blur_down, blur_along, sharpen_row, box_pass_avx2};

}  // namespace fastloader

#endif
