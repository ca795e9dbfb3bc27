#include "image/ops/kernels/box.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

/// The weights, which have 24 bits, in halves of 12.
struct Weights {
  __m256i high;
  __m256i low;
};

FASTLOADER_AVX2_INLINE __m256i pairs(uint32_t whole, uint32_t part) {
  return _mm256_set1_epi32(static_cast<int>(whole | part << 16));
}

/// Eight values of pairs (sum, parts).
FASTLOADER_AVX2_INLINE __m256i weigh(__m256i numbers, const Weights& weights) {
  const __m256i high = _mm256_slli_epi32(_mm256_madd_epi16(numbers, weights.high), 12);
  const __m256i low =
      _mm256_add_epi32(_mm256_madd_epi16(numbers, weights.low), _mm256_set1_epi32(1 << 23));
  return _mm256_srli_epi32(_mm256_add_epi32(high, low), 24);
}

/// 16 bytes as numbers of 16 bits.
FASTLOADER_AVX2_INLINE __m256i load(const uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

struct AddTo {
  const uint8_t* in;
  __m256i* sums;

  FASTLOADER_AVX2 void operator()(size_t line, uint32_t times) const {
    const uint8_t* from = in + line * kBoxLine;
    const __m256i factor = _mm256_set1_epi16(static_cast<int16_t>(times));
    for (size_t i = 0; i < 3; ++i) {
      sums[i] = _mm256_add_epi16(sums[i], _mm256_mullo_epi16(load(from + i * 16), factor));
    }
  }
};

/// 16 bytes of a line; their sum moves on to it.
FASTLOADER_AVX2_INLINE void move_on(const uint8_t* leaves, const uint8_t* enters,
                                    const uint8_t* beyond, const Weights& weights, __m256i& sum,
                                    uint8_t* out) {
  const __m256i left = load(leaves);
  sum = _mm256_sub_epi16(_mm256_add_epi16(sum, load(enters)), left);
  const __m256i parts = _mm256_add_epi16(left, load(beyond));
  const __m256i made = _mm256_packs_epi32(weigh(_mm256_unpacklo_epi16(sum, parts), weights),
                                          weigh(_mm256_unpackhi_epi16(sum, parts), weights));
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm_packus_epi16(_mm256_castsi256_si128(made), _mm256_extracti128_si256(made, 1)));
}

/// For radii up to kMaxNarrowRadius.
FASTLOADER_AVX2 void narrow_box_pass(const uint8_t* in, size_t lines, const Box& box,
                                     uint8_t* out) {
  static_assert(kBoxLine == 3 * 16);
  const Weights weights{pairs(box.whole >> 12, box.part >> 12),
                        pairs(box.whole & 4095, box.part & 4095)};
  __m256i sums[] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  sum_before_first(lines, box, AddTo{in, sums});
  __m256i a = sums[0];
  __m256i b = sums[1];
  __m256i c = sums[2];
  for (size_t line = 0; line < lines; ++line, out += kBoxLine) {
    const Ends ends = ends_at(line, lines - 1, box);
    const uint8_t* leaves = in + ends.leaves * kBoxLine;
    const uint8_t* enters = in + ends.enters * kBoxLine;
    const uint8_t* beyond = in + ends.beyond * kBoxLine;
    move_on(leaves, enters, beyond, weights, a, out);
    move_on(leaves + 16, enters + 16, beyond + 16, weights, b, out + 16);
    move_on(leaves + 32, enters + 32, beyond + 32, weights, c, out + 32);
  }
}

}  // namespace

void box_pass_avx2(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
  if (box.radius > kMaxNarrowRadius) return box_pass_scalar(in, lines, box, out);
  narrow_box_pass(in, lines, box, out);
}

}  // namespace fastloader

#endif
