#include "image/jpeg/kernels/dct.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

using namespace jpeg_dct;

// Two blocks go together, one in each half of a register. Most instructions of AVX2 stay within a
// half, so the blocks never meet.

constexpr size_t kGroup = 2;
using Group = const JpegBlock* const*;

FASTLOADER_AVX2_INLINE __m256i in_each_half(__m128i half) {
  return _mm256_broadcastsi128_si256(half);
}

FASTLOADER_AVX2_INLINE __m256i in_each_pair(Factors factors) {
  return _mm256_set1_epi32(static_cast<uint16_t>(factors.first) | factors.second * (1 << 16));
}

FASTLOADER_AVX2_INLINE __m256i sum(__m256i pairs, Factors factors) {
  return _mm256_madd_epi16(pairs, in_each_pair(factors));
}

// --- from the file's order to rows --------------------------------------------------------------

/// Coefficients 8 * k to 8 * k + 7 of both blocks.
FASTLOADER_AVX2_INLINE __m256i load(Group group, size_t k) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(group[1]->coefficients) + k,
                             reinterpret_cast<const __m128i*>(group[0]->coefficients) + k);
}

template <size_t kCount>
FASTLOADER_AVX2_INLINE void clear(Group group) {
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

FASTLOADER_AVX2_INLINE __m256i shuffled(__m256i numbers, const Shuffle& shuffle) {
  return _mm256_shuffle_epi8(numbers,
                             _mm256_load_si256(reinterpret_cast<const __m256i*>(shuffle.bytes)));
}

template <size_t kRow, size_t kEight = 0>
FASTLOADER_AVX2_INLINE __m256i row_of(const __m256i (&eights)[8], __m256i row) {
  if constexpr (kEight == 8) {
    return row;
  } else if constexpr (RowShuffle<kRow, kEight>::kValue.takes_any) {
    const __m256i some = shuffled(eights[kEight], RowShuffle<kRow, kEight>::kValue);
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

FASTLOADER_AVX2_INLINE __m256i multiplied(__m256i numbers, __m128i factors) {
  return _mm256_mullo_epi16(numbers, in_each_half(factors));
}

FASTLOADER_AVX2_INLINE bool beyond_limit(__m256i first_row) {
  const __m256i positive = _mm256_add_epi16(first_row, _mm256_set1_epi16(kFirstRowLimit));
  return _mm256_testz_si256(positive, _mm256_set1_epi16(-2 * kFirstRowLimit)) == 0;
}

// --- a pass -------------------------------------------------------------------------------------

/// 32 bits for each of four columns (or rows), and for each of the other four.
struct Fours {
  __m256i left;
  __m256i right;
};

FASTLOADER_AVX2_INLINE Fours sum(const Fours& pairs, Factors factors) {
  return {sum(pairs.left, factors), sum(pairs.right, factors)};
}

FASTLOADER_AVX2_INLINE Fours plus(const Fours& a, const Fours& b) {
  return {_mm256_add_epi32(a.left, b.left), _mm256_add_epi32(a.right, b.right)};
}

FASTLOADER_AVX2_INLINE Fours minus(const Fours& a, const Fours& b) {
  return {_mm256_sub_epi32(a.left, b.left), _mm256_sub_epi32(a.right, b.right)};
}

FASTLOADER_AVX2_INLINE Fours pairs_of(__m256i first, __m256i second) {
  return {_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)};
}

template <int kShift>
FASTLOADER_AVX2_INLINE __m256i shifted(__m256i sums) {
  return _mm256_srai_epi32(sums, kShift);
}

/// What the first pass leaves.
FASTLOADER_AVX2_INLINE __m256i narrowed(const Fours& sums) {
  return _mm256_packs_epi32(shifted<kFirstShift>(sums.left), shifted<kFirstShift>(sums.right));
}

/// What a pass begins with: in 0 plus in 4, and minus in 4, with the fraction and a half of what
/// will be dropped; and pairs of the others.
struct Inputs {
  Fours upper;
  Fours lower;
  Fours pairs_26;
  Fours pairs_71;
  Fours pairs_35;
};

/// Sums whose lower bits the caller drops.
FASTLOADER_AVX2_INLINE void transform(const Inputs& in, Fours (&out)[8]) {
  const Fours turned[2] = {sum(in.pairs_26, kEven26[0]), sum(in.pairs_26, kEven26[1])};
  const Fours even[4] = {plus(in.upper, turned[0]), plus(in.lower, turned[1]),
                         minus(in.lower, turned[1]), minus(in.upper, turned[0])};
  const Fours both = {_mm256_add_epi16(in.pairs_71.left, in.pairs_35.left),
                      _mm256_add_epi16(in.pairs_71.right, in.pairs_35.right)};
  const Fours sums[2] = {sum(both, kOddSums[0]), sum(both, kOddSums[1])};
  const Fours odd[4] = {
      plus(sum(in.pairs_71, kOdd[0]), sums[0]), plus(sum(in.pairs_35, kOdd[1]), sums[1]),
      plus(sum(in.pairs_35, kOdd[2]), sums[0]), plus(sum(in.pairs_71, kOdd[3]), sums[1])};
  // Here and below written out: unless told to, GCC keeps loops over registers, and these in
  // memory.
  out[0] = plus(even[0], odd[0]);
  out[1] = plus(even[1], odd[1]);
  out[2] = plus(even[2], odd[2]);
  out[3] = plus(even[3], odd[3]);
  out[4] = minus(even[3], odd[3]);
  out[5] = minus(even[2], odd[2]);
  out[6] = minus(even[1], odd[1]);
  out[7] = minus(even[0], odd[0]);
}

/// The same for pairs of in 0 and in 2, and of in 1 and in 3, where the others are zero.
template <int kShift, size_t kNumber>
FASTLOADER_AVX2_INLINE void transform_low(__m256i pairs_02, __m256i pairs_13, __m256i (&out)[8]) {
  const __m256i half = _mm256_set1_epi32(1 << (kShift - 1));
  const __m256i even = _mm256_add_epi32(sum(pairs_02, kLowEven02[kNumber]), half);
  const __m256i odd = sum(pairs_13, kLowOdd13[kNumber]);
  out[kNumber] = shifted<kShift>(_mm256_add_epi32(even, odd));
  out[7 - kNumber] = shifted<kShift>(_mm256_sub_epi32(even, odd));
}

template <int kShift>
FASTLOADER_AVX2_INLINE void transform_low(__m256i pairs_02, __m256i pairs_13, __m256i (&out)[8]) {
  transform_low<kShift, 0>(pairs_02, pairs_13, out);
  transform_low<kShift, 1>(pairs_02, pairs_13, out);
  transform_low<kShift, 2>(pairs_02, pairs_13, out);
  transform_low<kShift, 3>(pairs_02, pairs_13, out);
}

// --- columns to samples -------------------------------------------------------------------------

/// Four rows, as columns of bytes, become four times four samples.
FASTLOADER_AVX2_INLINE __m256i four_by_four(const __m256i* columns) {
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(columns[0], columns[1]),
                                           _mm256_packs_epi32(columns[2], columns[3]));
  const __m256i turned = in_each_half(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13,  //
                                                    2, 6, 10, 14, 3, 7, 11, 15));
  return _mm256_shuffle_epi8(_mm256_xor_si256(bytes, _mm256_set1_epi8(INT8_MIN)), turned);
}

FASTLOADER_AVX2_INLINE void store_two_rows(__m128i rows, uint8_t* to, size_t stride) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), rows);
  _mm_storeh_pi(reinterpret_cast<__m64*>(to + stride), _mm_castsi128_ps(rows));
}

/// Four of the rows, from `first` on.
FASTLOADER_AVX2_INLINE void store_four_rows(const __m256i (&columns)[8], size_t first, Group group,
                                            size_t stride) {
  const __m256i left = four_by_four(columns);
  const __m256i right = four_by_four(columns + 4);
  const __m256i two = _mm256_unpacklo_epi32(left, right);
  const __m256i others = _mm256_unpackhi_epi32(left, right);
  uint8_t* to = group[0]->samples + first * stride;
  store_two_rows(_mm256_castsi256_si128(two), to, stride);
  store_two_rows(_mm256_castsi256_si128(others), to + 2 * stride, stride);
  to = group[1]->samples + first * stride;
  store_two_rows(_mm256_extracti128_si256(two, 1), to, stride);
  store_two_rows(_mm256_extracti128_si256(others, 1), to + 2 * stride, stride);
}

// --- whole blocks -------------------------------------------------------------------------------

/// In each half four rows of four pairs, which become four columns.
FASTLOADER_AVX2_INLINE void transpose(const __m256i* rows, __m256i (&columns)[4]) {
  const __m256i upper_left = _mm256_unpacklo_epi32(rows[0], rows[1]);
  const __m256i upper_right = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i lower_left = _mm256_unpacklo_epi32(rows[2], rows[3]);
  const __m256i lower_right = _mm256_unpackhi_epi32(rows[2], rows[3]);
  columns[0] = _mm256_unpacklo_epi64(upper_left, lower_left);
  columns[1] = _mm256_unpackhi_epi64(upper_left, lower_left);
  columns[2] = _mm256_unpacklo_epi64(upper_right, lower_right);
  columns[3] = _mm256_unpackhi_epi64(upper_right, lower_right);
}

/// Pairs of in 0 and in 4 become their sum and their difference: 16 bits, then the fraction.
FASTLOADER_AVX2_INLINE void add_and_subtract(__m256i pairs, __m256i half, __m256i& upper,
                                             __m256i& lower) {
  constexpr int kShift = 16 - kFractionBits;
  const __m256i first = _mm256_slli_epi32(pairs, 16);
  const __m256i second = _mm256_and_si256(pairs, in_each_pair({0, -1}));
  upper = _mm256_add_epi32(_mm256_srai_epi32(_mm256_add_epi32(first, second), kShift), half);
  lower = _mm256_add_epi32(_mm256_srai_epi32(_mm256_sub_epi32(first, second), kShift), half);
}

FASTLOADER_AVX2 void transform_full(Group group, const Quantization& quantization, size_t stride) {
  const __m256i eights[8] = {load(group, 0), load(group, 1), load(group, 2), load(group, 3),
                             load(group, 4), load(group, 5), load(group, 6), load(group, 7)};
  const __m256i none = _mm256_setzero_si256();
  const __m128i* factors = quantization.rows;
  const __m256i first = multiplied(row_of<0>(eights, none), factors[0]);
  if (beyond_limit(first)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  __m256i rows[8] = {first,
                     multiplied(row_of<1>(eights, none), factors[1]),
                     multiplied(row_of<2>(eights, none), factors[2]),
                     multiplied(row_of<3>(eights, none), factors[3]),
                     multiplied(row_of<4>(eights, none), factors[4]),
                     multiplied(row_of<5>(eights, none), factors[5]),
                     multiplied(row_of<6>(eights, none), factors[6]),
                     multiplied(row_of<7>(eights, none), factors[7])};
  clear<kJpegBlock>(group);

  // A half of what the first pass drops is put below the 16 bits, before they get their fraction.
  constexpr int kShift = 16 - kFractionBits;
  const __m256i below = _mm256_set1_epi16(1 << (kFirstShift - 1 + kShift));
  Fours upper = pairs_of(below, _mm256_add_epi16(rows[0], rows[4]));
  Fours lower = pairs_of(below, _mm256_sub_epi16(rows[0], rows[4]));
  upper = {shifted<kShift>(upper.left), shifted<kShift>(upper.right)};
  lower = {shifted<kShift>(lower.left), shifted<kShift>(lower.right)};
  Fours out[8];
  transform({upper, lower, pairs_of(rows[2], rows[6]), pairs_of(rows[7], rows[1]),
             pairs_of(rows[3], rows[5])},
            out);
  const __m256i lines[8] = {narrowed(out[0]), narrowed(out[1]), narrowed(out[2]), narrowed(out[3]),
                            narrowed(out[4]), narrowed(out[5]), narrowed(out[6]), narrowed(out[7])};

  // Rows 0 to 3 are now left, and the others right.
  __m256i left[4];
  __m256i right[4];
  transpose(lines, left);
  transpose(lines + 4, right);
  const __m256i half = _mm256_set1_epi32(1 << (kSecondShift - 1));
  add_and_subtract(left[0], half, upper.left, lower.left);
  add_and_subtract(right[0], half, upper.right, lower.right);
  transform({upper, lower, {left[1], right[1]}, {left[2], right[2]}, {left[3], right[3]}}, out);
  const __m256i left_columns[8] = {
      shifted<kSecondShift>(out[0].left), shifted<kSecondShift>(out[1].left),
      shifted<kSecondShift>(out[2].left), shifted<kSecondShift>(out[3].left),
      shifted<kSecondShift>(out[4].left), shifted<kSecondShift>(out[5].left),
      shifted<kSecondShift>(out[6].left), shifted<kSecondShift>(out[7].left)};
  store_four_rows(left_columns, 0, group, stride);
  const __m256i right_columns[8] = {
      shifted<kSecondShift>(out[0].right), shifted<kSecondShift>(out[1].right),
      shifted<kSecondShift>(out[2].right), shifted<kSecondShift>(out[3].right),
      shifted<kSecondShift>(out[4].right), shifted<kSecondShift>(out[5].right),
      shifted<kSecondShift>(out[6].right), shifted<kSecondShift>(out[7].right)};
  store_four_rows(right_columns, 4, group, stride);
}

/// In each half four rows, of four columns each, become pairs of columns: 1 with 3, and 0 with 2.
FASTLOADER_AVX2_INLINE void transpose_low(const __m256i* rows, __m256i& pairs_02,
                                          __m256i& pairs_13) {
  const __m256i even = _mm256_packs_epi32(rows[0], rows[2]);
  const __m256i odd = _mm256_packs_epi32(rows[1], rows[3]);
  const __m256i upper = _mm256_unpacklo_epi32(even, odd);
  const __m256i lower = _mm256_unpackhi_epi32(even, odd);
  pairs_13 = _mm256_unpacklo_epi64(upper, lower);
  pairs_02 = _mm256_unpackhi_epi64(upper, lower);
}

/// The second pass for four rows from `first` on.
FASTLOADER_AVX2_INLINE void finish_low_rows(const __m256i (&rows)[8], size_t first, Group group,
                                            size_t stride) {
  __m256i pairs_02;
  __m256i pairs_13;
  transpose_low(rows + first, pairs_02, pairs_13);
  __m256i columns[8];
  transform_low<kSecondShift>(pairs_02, pairs_13, columns);
  store_four_rows(columns, first, group, stride);
}

FASTLOADER_AVX2 void transform_low_blocks(Group group, const Quantization& quantization,
                                          size_t stride) {
  const __m256i first = load(group, 0);
  const __m256i second = load(group, 1);
  const __m256i in_02 = _mm256_or_si256(shuffled(first, LowShuffle<0, 2, 0>::kValue),
                                        shuffled(second, LowShuffle<0, 2, 1>::kValue));
  const __m256i in_13 = _mm256_or_si256(shuffled(first, LowShuffle<1, 3, 0>::kValue),
                                        shuffled(second, LowShuffle<1, 3, 1>::kValue));
  __m256i pairs_02 = multiplied(in_02, quantization.low_02);
  __m256i pairs_13 = multiplied(in_13, quantization.low_13);
  if (beyond_limit(pairs_02)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear<16>(group);

  __m256i rows[8];
  transform_low<kFirstShift>(pairs_02, pairs_13, rows);
  finish_low_rows(rows, 0, group, stride);
  finish_low_rows(rows, 4, group, stride);
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
