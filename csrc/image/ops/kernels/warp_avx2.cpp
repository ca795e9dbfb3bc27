#include "image/ops/kernels/warp.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

// Four pixels of the result at a time, one in each double of a register, channel after channel.
//
// A byte becomes a double as its lowest bits: 2^52 + byte has them where an integer has them.
// Differences of two such numbers are those of the bytes, and no less exact.

constexpr size_t kPixels = 4;
constexpr double kBias = 4503599627370496.0;

/// Two pixels side by side for each pixel of the result.
FASTLOADER_AVX2_INLINE __m256i load_pairs(const uint8_t* const* from, ptrdiff_t offset) {
  const auto pair = [&](size_t i) {
    int64_t bytes;
    std::memcpy(&bytes, from[i] + offset, sizeof(bytes));
    return bytes;
  };
  return _mm256_setr_epi64x(pair(0), pair(1), pair(2), pair(3));
}

/// 2^52 + the byte at a place in each pair. `shuffle` takes that byte to the lowest.
FASTLOADER_AVX2_INLINE __m256d biased(__m256i pairs, __m256i shuffle) {
  return _mm256_or_pd(_mm256_castsi256_pd(_mm256_shuffle_epi8(pairs, shuffle)),
                      _mm256_set1_pd(kBias));
}

FASTLOADER_AVX2_INLINE __m256i byte_shuffle(int place) {
  const int64_t none = static_cast<int64_t>(0x8080808080808000u);
  return _mm256_setr_epi64x(none | place, none | (place + 8), none | place, none | (place + 8));
}

FASTLOADER_AVX2_INLINE __m256d unbiased(__m256d number) {
  return _mm256_sub_pd(number, _mm256_set1_pd(kBias));
}

/// Each of the products and sums rounds by itself.
FASTLOADER_AVX2_INLINE __m256d plus(__m256d sum, __m256d factor, __m256d number) {
  return _mm256_add_pd(sum, _mm256_mul_pd(factor, number));
}

/// Where the four pixels come from.
struct Places {
  const uint8_t* from[kPixels];  // the pixel on the upper left
  __m256d dx;
  __m256d dy;
};

struct Bilinear {
  /// Between the pixels of a pair.
  FASTLOADER_AVX2_INLINE static __m256d along(__m256i pairs, int channel, __m256d d) {
    const __m256d first = biased(pairs, byte_shuffle(channel));
    const __m256d second = biased(pairs, byte_shuffle(channel + 4));
    return plus(unbiased(first), d, _mm256_sub_pd(second, first));
  }

  FASTLOADER_AVX2_INLINE static void mix(const Places& places, ptrdiff_t stride, __m256d* made) {
    const __m256i upper = load_pairs(places.from, 0);
    for (int c = 0; c < 3; ++c) made[c] = along(upper, c, places.dx);
    // A fraction of 0 takes nothing from below: moves and shears along the rows need no more.
    const __m256d is_0 = _mm256_cmp_pd(places.dy, _mm256_setzero_pd(), _CMP_EQ_OQ);
    if (_mm256_movemask_pd(is_0) == 0xf) return;
    const __m256i lower = load_pairs(places.from, stride);
    for (int c = 0; c < 3; ++c) {
      made[c] = plus(made[c], places.dy, _mm256_sub_pd(along(lower, c, places.dx), made[c]));
    }
  }
};

struct Bicubic {
  /// Between the second and the third of four pixels. All that is not a product is exact.
  FASTLOADER_AVX2_INLINE static __m256d along(__m256i v12, __m256i v34, int channel, __m256d d) {
    const __m256d v1 = biased(v12, byte_shuffle(channel));
    const __m256d v2 = biased(v12, byte_shuffle(channel + 4));
    const __m256d v3 = biased(v34, byte_shuffle(channel));
    const __m256d v4 = biased(v34, byte_shuffle(channel + 4));
    const __m256d v2_less_v1 = _mm256_sub_pd(v2, v1);
    const __m256d v3_less_v4 = _mm256_sub_pd(v3, v4);
    const __m256d p2 = _mm256_sub_pd(v3, v1);
    const __m256d p4 = _mm256_sub_pd(v2_less_v1, v3_less_v4);
    const __m256d p3 = _mm256_sub_pd(_mm256_setzero_pd(), _mm256_add_pd(p4, v2_less_v1));
    return plus(unbiased(v2), d, plus(p2, d, plus(p3, d, p4)));
  }

  /// Pillow's order of operations.
  FASTLOADER_AVX2_INLINE static __m256d down(__m256d v1, __m256d v2, __m256d v3, __m256d v4,
                                             __m256d d) {
    const __m256d p2 = _mm256_sub_pd(v3, v1);
    const __m256d twice = _mm256_mul_pd(_mm256_set1_pd(2.0), _mm256_sub_pd(v1, v2));
    const __m256d p3 = _mm256_sub_pd(_mm256_add_pd(twice, v3), v4);
    const __m256d p4 = _mm256_add_pd(_mm256_sub_pd(_mm256_sub_pd(v2, v1), v3), v4);
    return plus(v2, d, plus(p2, d, plus(p3, d, p4)));
  }

  FASTLOADER_AVX2_INLINE static void mix(const Places& places, ptrdiff_t stride, __m256d* made) {
    constexpr ptrdiff_t kPixel = WarpSource::kPixel;
    const __m256d is_0 = _mm256_cmp_pd(places.dy, _mm256_setzero_pd(), _CMP_EQ_OQ);
    if (_mm256_movemask_pd(is_0) == 0xf) {
      const __m256i v12 = load_pairs(places.from, -kPixel);
      const __m256i v34 = load_pairs(places.from, kPixel);
      for (int c = 0; c < 3; ++c) made[c] = along(v12, v34, c, places.dx);
      return;
    }
    __m256d rows[4][3];
    for (int row = 0; row < 4; ++row) {
      const __m256i v12 = load_pairs(places.from, (row - 1) * stride - kPixel);
      const __m256i v34 = load_pairs(places.from, (row - 1) * stride + kPixel);
      for (int c = 0; c < 3; ++c) rows[row][c] = along(v12, v34, c, places.dx);
    }
    for (int c = 0; c < 3; ++c) {
      made[c] = down(rows[0][c], rows[1][c], rows[2][c], rows[3][c], places.dy);
    }
  }
};

/// Truncated, from 0 to 255.
FASTLOADER_AVX2_INLINE void store(const __m256d* made, uint8_t* to) {
  const __m128i red_green =
      _mm_packs_epi32(_mm256_cvttpd_epi32(made[0]), _mm256_cvttpd_epi32(made[1]));
  const __m128i blue = _mm256_cvttpd_epi32(made[2]);
  const __m128i planes = _mm_packus_epi16(red_green, _mm_packs_epi32(blue, blue));
  const __m128i joined =
      _mm_shuffle_epi8(planes, _mm_setr_epi8(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, -1, -1, -1, -1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), joined);
  const int last = _mm_extract_epi32(joined, 2);
  std::memcpy(to + 8, &last, sizeof(last));
}

/// Whether all four lie in the picture, which NaN does not.
FASTLOADER_AVX2_INLINE bool inside(__m256d x, __m256d y, const WarpSource& source) {
  const __m256d zero = _mm256_setzero_pd();
  const __m256d in_x = _mm256_and_pd(_mm256_cmp_pd(x, zero, _CMP_GE_OQ),
                                     _mm256_cmp_pd(x, _mm256_set1_pd(source.width), _CMP_LT_OQ));
  const __m256d in_y = _mm256_and_pd(_mm256_cmp_pd(y, zero, _CMP_GE_OQ),
                                     _mm256_cmp_pd(y, _mm256_set1_pd(source.height), _CMP_LT_OQ));
  return _mm256_movemask_pd(_mm256_and_pd(in_x, in_y)) == 0xf;
}

template <class Filter>
FASTLOADER_AVX2_INLINE void fetch(const WarpSource& source, WarpKernel scalar, const double* xs,
                                  const double* ys, size_t count, uint8_t* to) {
  const __m256d half = _mm256_set1_pd(0.5);
  const auto stride = static_cast<ptrdiff_t>(source.stride);
  size_t i = 0;
  for (; i + kPixels <= count; i += kPixels, to += 3 * kPixels) {
    const __m256d centre_x = _mm256_loadu_pd(xs + i);
    const __m256d centre_y = _mm256_loadu_pd(ys + i);
    if (!inside(centre_x, centre_y, source)) {
      scalar(source, xs + i, ys + i, kPixels, to);
      continue;
    }
    const __m256d x = _mm256_sub_pd(centre_x, half);
    const __m256d y = _mm256_sub_pd(centre_y, half);
    const __m256d floor_x = _mm256_floor_pd(x);
    const __m256d floor_y = _mm256_floor_pd(y);
    alignas(16) int32_t left[kPixels];
    alignas(16) int32_t top[kPixels];
    _mm_store_si128(reinterpret_cast<__m128i*>(left), _mm256_cvttpd_epi32(floor_x));
    _mm_store_si128(reinterpret_cast<__m128i*>(top), _mm256_cvttpd_epi32(floor_y));
    Places places;
    for (size_t k = 0; k < kPixels; ++k) places.from[k] = source.at(left[k], top[k]);
    places.dx = _mm256_sub_pd(x, floor_x);
    places.dy = _mm256_sub_pd(y, floor_y);
    __m256d made[3];
    Filter::mix(places, stride, made);
    store(made, to);
  }
  scalar(source, xs + i, ys + i, count - i, to);
}

FASTLOADER_AVX2 void bilinear(const WarpSource& source, const double* x, const double* y,
                              size_t count, uint8_t* to) {
  fetch<Bilinear>(source, kWarpScalar.bilinear, x, y, count, to);
}

FASTLOADER_AVX2 void bicubic(const WarpSource& source, const double* x, const double* y,
                             size_t count, uint8_t* to) {
  fetch<Bicubic>(source, kWarpScalar.bicubic, x, y, count, to);
}

FASTLOADER_AVX2 void widen(const uint8_t* rgb, size_t pixels, uint8_t* to) {
  constexpr size_t kSome = 8;
  constexpr size_t kHalf = 12;  // bytes, in each half of a register
  const __m256i apart = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
  size_t i = 0;
  // 4 bytes more than those of the pixels are read.
  for (; (pixels - i) * 3 >= kHalf + 16; i += kSome) {
    const auto* from = rgb + i * 3;
    const __m256i loaded = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(from + kHalf),
                                               reinterpret_cast<const __m128i*>(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * WarpSource::kPixel),
                        _mm256_shuffle_epi8(loaded, apart));
  }
  kWarpScalar.widen(rgb + i * 3, pixels - i, to + i * WarpSource::kPixel);
}

}  // namespace

const WarpKernels kWarpAvx2 = {widen, bilinear, bicubic};

}  // namespace fastloader

#endif
