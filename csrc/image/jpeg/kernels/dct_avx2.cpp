#include "image/jpeg/kernels/dct.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_LANES_INLINE __attribute__((target("avx2"), always_inline)) inline
#define FASTLOADER_LANES_INTRINSIC(name) _mm256_##name

namespace fastloader {
namespace {

using Lanes = __m256i;

FASTLOADER_LANES_INLINE Lanes in_each_lane(__m128i lane) {
  return _mm256_broadcastsi128_si256(lane);
}

template <size_t kLane>
FASTLOADER_LANES_INLINE __m128i lane(Lanes lanes) {
  return _mm256_extracti128_si256(lanes, static_cast<int>(kLane));
}

FASTLOADER_LANES_INLINE bool share_bits(Lanes a, Lanes b) { return _mm256_testz_si256(a, b) == 0; }

}  // namespace
}  // namespace fastloader

#include "image/jpeg/kernels/lanes.h"

namespace fastloader {
namespace {

// --- from the file's order to rows --------------------------------------------------------------

/// Coefficients 8 * k to 8 * k + 7 of both blocks.
FASTLOADER_LANES_INLINE Lanes load(Group group, size_t k) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(group[1]->coefficients) + k,
                             reinterpret_cast<const __m128i*>(group[0]->coefficients) + k);
}

template <size_t kCount>
FASTLOADER_LANES_INLINE void clear(Group group) {
  for (size_t i = 0; i < kGroup; ++i) {
    auto* to = reinterpret_cast<__m256i*>(group[i]->coefficients);
    for (size_t k = 0; k < kCount / 16; ++k) _mm256_store_si256(to + k, _mm256_setzero_si256());
  }
}

/// Takes 8 numbers to their places, in each half.
struct alignas(32) Shuffle {
  uint8_t bytes[32];
  bool takes_any;

  constexpr Shuffle() : bytes(), takes_any(false) {
    for (uint8_t& byte : bytes) byte = 0x80;
  }

  /// Coefficient `number` of the file goes to `place`, if it is one of 8 * k to 8 * k + 7.
  constexpr void take(size_t number, size_t k, size_t place) {
    if (number / 8 != k) return;
    for (size_t half = 0; half < 32; half += 16) {
      bytes[half + 2 * place] = static_cast<uint8_t>(number % 8 * 2);
      bytes[half + 2 * place + 1] = static_cast<uint8_t>(number % 8 * 2 + 1);
    }
    takes_any = true;
  }
};

template <size_t kRow, size_t kEight>
struct RowShuffle {
  static constexpr Shuffle make() {
    Shuffle shuffle;
    for (size_t i = 0; i < kJpegEdge; ++i) shuffle.take(in_file(kRow, kColumns[i]), kEight, i);
    return shuffle;
  }
  static constexpr Shuffle kValue = make();
};

/// Two rows of four columns, number beside number.
template <size_t kRow, size_t kOtherRow, size_t kEight>
struct LowShuffle {
  static constexpr Shuffle make() {
    Shuffle shuffle;
    for (size_t i = 0; i < 4; ++i) {
      const size_t first = in_file(kRow, kLowColumns[i]);
      const size_t second = in_file(kOtherRow, kLowColumns[i]);
      if (first < kLowCoefficients) shuffle.take(first, kEight, 2 * i);
      if (second < kLowCoefficients) shuffle.take(second, kEight, 2 * i + 1);
    }
    return shuffle;
  }
  static constexpr Shuffle kValue = make();
};

FASTLOADER_LANES_INLINE Lanes shuffled(Lanes numbers, const Shuffle& shuffle) {
  return _mm256_shuffle_epi8(numbers,
                             _mm256_load_si256(reinterpret_cast<const __m256i*>(shuffle.bytes)));
}

template <size_t kRow, size_t kEight = 0>
FASTLOADER_LANES_INLINE Lanes row_of(const Lanes (&eights)[8], Lanes row) {
  if constexpr (kEight == 8) {
    return row;
  } else if constexpr (RowShuffle<kRow, kEight>::kValue.takes_any) {
    const Lanes some = shuffled(eights[kEight], RowShuffle<kRow, kEight>::kValue);
    return row_of<kRow, kEight + 1>(eights, _mm256_or_si256(row, some));
  } else {
    return row_of<kRow, kEight + 1>(eights, row);
  }
}

constexpr Shuffle make_column_shuffle() {
  Shuffle shuffle;
  for (size_t i = 0; i < kJpegEdge; ++i) shuffle.take(kColumns[i], 0, i);
  return shuffle;
}

constexpr Shuffle kColumnShuffle = make_column_shuffle();

/// The factors in the order in which the numbers of each half lie.
struct Quantization {
  const uint16_t* in_order;
  __m128i rows[kJpegEdge];
  __m128i low_02;
  __m128i low_13;
};

FASTLOADER_AVX2 Quantization arranged(const uint16_t* quantization) {
  Quantization arranged;
  arranged.in_order = quantization;
  const __m128i columns = _mm_load_si128(reinterpret_cast<const __m128i*>(kColumnShuffle.bytes));
  __m128i rows[kJpegEdge];
  for (size_t i = 0; i < kJpegEdge; ++i) {
    rows[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(quantization) + i);
    arranged.rows[i] = _mm_shuffle_epi8(rows[i], columns);
  }
  constexpr int kPairs =
      kLowColumns[0] | kLowColumns[1] << 2 | kLowColumns[2] << 4 | kLowColumns[3] << 6;
  arranged.low_02 = _mm_shuffle_epi32(_mm_unpacklo_epi16(rows[0], rows[2]), kPairs);
  arranged.low_13 = _mm_shuffle_epi32(_mm_unpacklo_epi16(rows[1], rows[3]), kPairs);
  return arranged;
}

FASTLOADER_LANES_INLINE Lanes multiplied(Lanes numbers, __m128i factors) {
  return _mm256_mullo_epi16(numbers, in_each_lane(factors));
}

FASTLOADER_AVX2 void transform_full(Group group, const Quantization& quantization, size_t stride) {
  const Lanes eights[8] = {load(group, 0), load(group, 1), load(group, 2), load(group, 3),
                           load(group, 4), load(group, 5), load(group, 6), load(group, 7)};
  const Lanes none = _mm256_setzero_si256();
  const __m128i* factors = quantization.rows;
  const Lanes first = multiplied(row_of<0>(eights, none), factors[0]);
  if (beyond_limit(first)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  const Lanes rows[8] = {first,
                         multiplied(row_of<1>(eights, none), factors[1]),
                         multiplied(row_of<2>(eights, none), factors[2]),
                         multiplied(row_of<3>(eights, none), factors[3]),
                         multiplied(row_of<4>(eights, none), factors[4]),
                         multiplied(row_of<5>(eights, none), factors[5]),
                         multiplied(row_of<6>(eights, none), factors[6]),
                         multiplied(row_of<7>(eights, none), factors[7])};
  clear<kJpegBlock>(group);

  const Fours upper = with_fraction(add_epi16(rows[0], rows[4]));
  const Fours lower = with_fraction(sub_epi16(rows[0], rows[4]));
  transform_and_store({upper, lower, pairs_of(rows[2], rows[6]), pairs_of(rows[7], rows[1]),
                       pairs_of(rows[3], rows[5])},
                      group, stride);
}

FASTLOADER_AVX2 void transform_low_blocks(Group group, const Quantization& quantization,
                                          size_t stride) {
  const Lanes first = load(group, 0);
  const Lanes second = load(group, 1);
  const Lanes in_02 = _mm256_or_si256(shuffled(first, LowShuffle<0, 2, 0>::kValue),
                                      shuffled(second, LowShuffle<0, 2, 1>::kValue));
  const Lanes in_13 = _mm256_or_si256(shuffled(first, LowShuffle<1, 3, 0>::kValue),
                                      shuffled(second, LowShuffle<1, 3, 1>::kValue));
  const Lanes pairs_02 = multiplied(in_02, quantization.low_02);
  const Lanes pairs_13 = multiplied(in_13, quantization.low_13);
  if (beyond_limit(pairs_02)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear<16>(group);
  transform_and_store_low(pairs_02, pairs_13, group, stride);
}

}  // namespace

FASTLOADER_AVX2 void inverse_dct_avx2(const JpegBlock* blocks, size_t count,
                                      const uint16_t* quantization, size_t stride) {
  const Quantization own = arranged(quantization);
  transform_in_groups<kGroup>(
      blocks, count, [&](Group group) { transform_low_blocks(group, own, stride); },
      [&](Group group) { transform_full(group, own, stride); });
}

}  // namespace fastloader

#endif
