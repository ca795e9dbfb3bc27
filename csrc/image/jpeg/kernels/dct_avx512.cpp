#include "image/jpeg/kernels/dct.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
// GCC bug 105593: the compiler's own header is said to use uninitialised vectors.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
// Unoptimised, GCC's intrinsics are macros and their conversions count as ours.
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#include <immintrin.h>

#define FASTLOADER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define FASTLOADER_AVX512_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) inline

namespace fastloader {
namespace {

using namespace jpeg_dct;

// Four blocks go together, one in each lane of 128 bits. From where the rows lie in registers to
// where they are stored it is the way of dct_avx2.cpp, whose comments are not repeated here.

constexpr size_t kGroup = 4;
using Group = const JpegBlock* const*;

FASTLOADER_AVX512_INLINE __m512i in_each_pair(Factors factors) {
  return _mm512_set1_epi32(static_cast<uint16_t>(factors.first) | factors.second * (1 << 16));
}

FASTLOADER_AVX512_INLINE __m512i sum(__m512i pairs, Factors factors) {
  return _mm512_madd_epi16(pairs, in_each_pair(factors));
}

// --- from the file's order to pairs -------------------------------------------------------------

// One instruction takes 16 bits to any place of a register, so that the first pass finds its pairs
// made, and has nothing to interleave.

/// For each 16 bits of two registers: where they come from.
struct alignas(64) Places {
  uint16_t words[kJpegBlock];

  static constexpr size_t row(size_t word) {
    constexpr size_t kRows[8][2] = {{0, 0}, {4, 4}, {2, 6}, {2, 6}, {7, 1}, {7, 1}, {3, 5}, {3, 5}};
    return kRows[word / 8][word % 2];
  }
  static constexpr size_t column(size_t word) {
    const size_t lane = word / 8;
    return kColumns[lane < 2 ? word % 8 : lane % 2 * 4 + word % 8 / 2];
  }
};

constexpr Places make_file_places() {
  Places places{};
  for (size_t i = 0; i < kJpegBlock; ++i) {
    places.words[i] = static_cast<uint16_t>(in_file(Places::row(i), Places::column(i)));
  }
  return places;
}

constexpr Places make_table_places() {
  Places places{};
  for (size_t i = 0; i < kJpegBlock; ++i) {
    places.words[i] = static_cast<uint16_t>(Places::row(i) * kJpegEdge + Places::column(i));
  }
  return places;
}

/// The same for two blocks with few coefficients, the 16 first of each.
struct alignas(64) LowPlaces {
  uint16_t words[32];

  static constexpr size_t row(size_t word) { return word / 8 % 2 + word % 2 * 2; }
  static constexpr size_t column(size_t word) { return kLowColumns[word % 8 / 2]; }
};

constexpr LowPlaces make_low_file_places() {
  LowPlaces places{};
  for (size_t i = 0; i < 32; ++i) {
    const size_t place = in_file(LowPlaces::row(i), LowPlaces::column(i));
    // Those that are zero come from one that is.
    places.words[i] = static_cast<uint16_t>(i / 16 * 16 + std::min<size_t>(place, 15));
  }
  return places;
}

constexpr LowPlaces make_low_table_places() {
  LowPlaces places{};
  for (size_t i = 0; i < 32; ++i) {
    places.words[i] = static_cast<uint16_t>(LowPlaces::row(i) * kJpegEdge + LowPlaces::column(i));
  }
  return places;
}

constexpr Places kFilePlaces = make_file_places();
constexpr Places kTablePlaces = make_table_places();
constexpr LowPlaces kLowFilePlaces = make_low_file_places();
constexpr LowPlaces kLowTablePlaces = make_low_table_places();

/// The factors in the order in which one block's numbers lie.
struct Quantization {
  const uint16_t* in_order;
  __m512i first;
  __m512i second;
  __m512i low;
};

FASTLOADER_AVX512_INLINE __m512i taken(__m512i first, __m512i second, const uint16_t* places) {
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(places), second);
}

FASTLOADER_AVX512_INLINE __m512i taken(__m512i from, const LowPlaces& places) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(places.words), from);
}

FASTLOADER_AVX512_INLINE Quantization arranged(const uint16_t* quantization) {
  const __m512i first = _mm512_load_si512(quantization);
  const __m512i second = _mm512_load_si512(quantization + 32);
  return {quantization, taken(first, second, kTablePlaces.words),
          taken(first, second, kTablePlaces.words + 32), taken(first, kLowTablePlaces)};
}

FASTLOADER_AVX512_INLINE bool beyond_limit(__m512i first_row) {
  const __m512i positive = _mm512_add_epi16(first_row, _mm512_set1_epi16(kFirstRowLimit));
  return _mm512_test_epi16_mask(positive, _mm512_set1_epi16(-2 * kFirstRowLimit)) != 0;
}

/// A block's numbers, times their factors.
FASTLOADER_AVX512_INLINE void load(const JpegBlock& block, const Quantization& quantization,
                                   __m512i& first, __m512i& second) {
  const __m512i in_first = _mm512_load_si512(block.coefficients);
  const __m512i in_second = _mm512_load_si512(block.coefficients + 32);
  first = _mm512_mullo_epi16(taken(in_first, in_second, kFilePlaces.words), quantization.first);
  second =
      _mm512_mullo_epi16(taken(in_first, in_second, kFilePlaces.words + 32), quantization.second);
}

FASTLOADER_AVX512_INLINE void clear(const JpegBlock& block) {
  _mm512_store_si512(block.coefficients, _mm512_setzero_si512());
  _mm512_store_si512(block.coefficients + 32, _mm512_setzero_si512());
}

FASTLOADER_AVX512_INLINE void clear_low(const JpegBlock& block) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(block.coefficients), _mm256_setzero_si256());
}

/// The lanes of four blocks become four registers, each with one lane of every block.
FASTLOADER_AVX512_INLINE void exchange_lanes(const __m512i (&blocks)[4], __m512i (&lanes)[4]) {
  const __m512i upper_01 = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0x44);
  const __m512i upper_23 = _mm512_shuffle_i64x2(blocks[2], blocks[3], 0x44);
  const __m512i lower_01 = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0xee);
  const __m512i lower_23 = _mm512_shuffle_i64x2(blocks[2], blocks[3], 0xee);
  lanes[0] = _mm512_shuffle_i64x2(upper_01, upper_23, 0x88);
  lanes[1] = _mm512_shuffle_i64x2(upper_01, upper_23, 0xdd);
  lanes[2] = _mm512_shuffle_i64x2(lower_01, lower_23, 0x88);
  lanes[3] = _mm512_shuffle_i64x2(lower_01, lower_23, 0xdd);
}

// --- a pass -------------------------------------------------------------------------------------

struct Fours {
  __m512i left;
  __m512i right;
};

FASTLOADER_AVX512_INLINE Fours sum(const Fours& pairs, Factors factors) {
  return {sum(pairs.left, factors), sum(pairs.right, factors)};
}

FASTLOADER_AVX512_INLINE Fours plus(const Fours& a, const Fours& b) {
  return {_mm512_add_epi32(a.left, b.left), _mm512_add_epi32(a.right, b.right)};
}

FASTLOADER_AVX512_INLINE Fours minus(const Fours& a, const Fours& b) {
  return {_mm512_sub_epi32(a.left, b.left), _mm512_sub_epi32(a.right, b.right)};
}

template <int kShift>
FASTLOADER_AVX512_INLINE __m512i shifted(__m512i sums) {
  return _mm512_srai_epi32(sums, kShift);
}

/// What the first pass leaves.
FASTLOADER_AVX512_INLINE __m512i narrowed(const Fours& sums) {
  return _mm512_packs_epi32(shifted<kFirstShift>(sums.left), shifted<kFirstShift>(sums.right));
}

struct Inputs {
  Fours upper;
  Fours lower;
  Fours pairs_26;
  Fours pairs_71;
  Fours pairs_35;
};

FASTLOADER_AVX512_INLINE void transform(const Inputs& in, Fours (&out)[8]) {
  const Fours turned[2] = {sum(in.pairs_26, kEven26[0]), sum(in.pairs_26, kEven26[1])};
  const Fours even[4] = {plus(in.upper, turned[0]), plus(in.lower, turned[1]),
                         minus(in.lower, turned[1]), minus(in.upper, turned[0])};
  const Fours both = {_mm512_add_epi16(in.pairs_71.left, in.pairs_35.left),
                      _mm512_add_epi16(in.pairs_71.right, in.pairs_35.right)};
  const Fours sums[2] = {sum(both, kOddSums[0]), sum(both, kOddSums[1])};
  const Fours odd[4] = {
      plus(sum(in.pairs_71, kOdd[0]), sums[0]), plus(sum(in.pairs_35, kOdd[1]), sums[1]),
      plus(sum(in.pairs_35, kOdd[2]), sums[0]), plus(sum(in.pairs_71, kOdd[3]), sums[1])};
  out[0] = plus(even[0], odd[0]);
  out[1] = plus(even[1], odd[1]);
  out[2] = plus(even[2], odd[2]);
  out[3] = plus(even[3], odd[3]);
  out[4] = minus(even[3], odd[3]);
  out[5] = minus(even[2], odd[2]);
  out[6] = minus(even[1], odd[1]);
  out[7] = minus(even[0], odd[0]);
}

template <int kShift, size_t kNumber>
FASTLOADER_AVX512_INLINE void transform_low(__m512i pairs_02, __m512i pairs_13, __m512i (&out)[8]) {
  const __m512i half = _mm512_set1_epi32(1 << (kShift - 1));
  const __m512i even = _mm512_add_epi32(sum(pairs_02, kLowEven02[kNumber]), half);
  const __m512i odd = sum(pairs_13, kLowOdd13[kNumber]);
  out[kNumber] = shifted<kShift>(_mm512_add_epi32(even, odd));
  out[7 - kNumber] = shifted<kShift>(_mm512_sub_epi32(even, odd));
}

template <int kShift>
FASTLOADER_AVX512_INLINE void transform_low(__m512i pairs_02, __m512i pairs_13, __m512i (&out)[8]) {
  transform_low<kShift, 0>(pairs_02, pairs_13, out);
  transform_low<kShift, 1>(pairs_02, pairs_13, out);
  transform_low<kShift, 2>(pairs_02, pairs_13, out);
  transform_low<kShift, 3>(pairs_02, pairs_13, out);
}

// --- columns to samples -------------------------------------------------------------------------

FASTLOADER_AVX512_INLINE __m512i four_by_four(const __m512i* columns) {
  const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(columns[0], columns[1]),
                                           _mm512_packs_epi32(columns[2], columns[3]));
  const __m512i turned = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13,  //
                                                              2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_xor_si512(bytes, _mm512_set1_epi8(INT8_MIN)), turned);
}

FASTLOADER_AVX512_INLINE void store_two_rows(__m128i rows, uint8_t* to, size_t stride) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), rows);
  _mm_storeh_pi(reinterpret_cast<__m64*>(to + stride), _mm_castsi128_ps(rows));
}

template <int kBlock>
FASTLOADER_AVX512_INLINE void store_lanes(__m512i two, __m512i others, uint8_t* to, size_t stride) {
  store_two_rows(_mm512_extracti32x4_epi32(two, kBlock), to, stride);
  store_two_rows(_mm512_extracti32x4_epi32(others, kBlock), to + 2 * stride, stride);
}

FASTLOADER_AVX512_INLINE void store_four_rows(const __m512i (&columns)[8], size_t first,
                                              Group group, size_t stride) {
  const __m512i left = four_by_four(columns);
  const __m512i right = four_by_four(columns + 4);
  const __m512i two = _mm512_unpacklo_epi32(left, right);
  const __m512i others = _mm512_unpackhi_epi32(left, right);
  store_lanes<0>(two, others, group[0]->samples + first * stride, stride);
  store_lanes<1>(two, others, group[1]->samples + first * stride, stride);
  store_lanes<2>(two, others, group[2]->samples + first * stride, stride);
  store_lanes<3>(two, others, group[3]->samples + first * stride, stride);
}

// --- whole blocks -------------------------------------------------------------------------------

FASTLOADER_AVX512_INLINE void transpose(const __m512i* rows, __m512i (&columns)[4]) {
  const __m512i upper_left = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i upper_right = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i lower_left = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i lower_right = _mm512_unpackhi_epi32(rows[2], rows[3]);
  columns[0] = _mm512_unpacklo_epi64(upper_left, lower_left);
  columns[1] = _mm512_unpackhi_epi64(upper_left, lower_left);
  columns[2] = _mm512_unpacklo_epi64(upper_right, lower_right);
  columns[3] = _mm512_unpackhi_epi64(upper_right, lower_right);
}

FASTLOADER_AVX512_INLINE void add_and_subtract(__m512i pairs, __m512i half, __m512i& upper,
                                               __m512i& lower) {
  constexpr int kShift = 16 - kFractionBits;
  const __m512i first = _mm512_slli_epi32(pairs, 16);
  const __m512i second = _mm512_and_si512(pairs, in_each_pair({0, -1}));
  upper = _mm512_add_epi32(shifted<kShift>(_mm512_add_epi32(first, second)), half);
  lower = _mm512_add_epi32(shifted<kShift>(_mm512_sub_epi32(first, second)), half);
}

FASTLOADER_AVX512_INLINE Fours with_fraction(__m512i row) {
  constexpr int kShift = 16 - kFractionBits;
  const __m512i below = _mm512_set1_epi16(1 << (kFirstShift - 1 + kShift));
  return {shifted<kShift>(_mm512_unpacklo_epi16(below, row)),
          shifted<kShift>(_mm512_unpackhi_epi16(below, row))};
}

FASTLOADER_AVX512 void transform_full(Group group, const Quantization& quantization,
                                      size_t stride) {
  __m512i blocks[kGroup];
  __m512i more_blocks[kGroup];
  load(*group[0], quantization, blocks[0], more_blocks[0]);
  load(*group[1], quantization, blocks[1], more_blocks[1]);
  load(*group[2], quantization, blocks[2], more_blocks[2]);
  load(*group[3], quantization, blocks[3], more_blocks[3]);
  __m512i lanes[4];
  __m512i more_lanes[4];
  exchange_lanes(blocks, lanes);
  exchange_lanes(more_blocks, more_lanes);
  if (beyond_limit(lanes[0])) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear(*group[0]);
  clear(*group[1]);
  clear(*group[2]);
  clear(*group[3]);

  Fours out[8];
  transform({with_fraction(_mm512_add_epi16(lanes[0], lanes[1])),
             with_fraction(_mm512_sub_epi16(lanes[0], lanes[1])),
             {lanes[2], lanes[3]},
             {more_lanes[0], more_lanes[1]},
             {more_lanes[2], more_lanes[3]}},
            out);
  const __m512i rows[8] = {narrowed(out[0]), narrowed(out[1]), narrowed(out[2]), narrowed(out[3]),
                           narrowed(out[4]), narrowed(out[5]), narrowed(out[6]), narrowed(out[7])};

  __m512i left[4];
  __m512i right[4];
  transpose(rows, left);
  transpose(rows + 4, right);
  const __m512i half = _mm512_set1_epi32(1 << (kSecondShift - 1));
  Fours upper;
  Fours lower;
  add_and_subtract(left[0], half, upper.left, lower.left);
  add_and_subtract(right[0], half, upper.right, lower.right);
  transform({upper, lower, {left[1], right[1]}, {left[2], right[2]}, {left[3], right[3]}}, out);
  const __m512i left_columns[8] = {
      shifted<kSecondShift>(out[0].left), shifted<kSecondShift>(out[1].left),
      shifted<kSecondShift>(out[2].left), shifted<kSecondShift>(out[3].left),
      shifted<kSecondShift>(out[4].left), shifted<kSecondShift>(out[5].left),
      shifted<kSecondShift>(out[6].left), shifted<kSecondShift>(out[7].left)};
  store_four_rows(left_columns, 0, group, stride);
  const __m512i right_columns[8] = {
      shifted<kSecondShift>(out[0].right), shifted<kSecondShift>(out[1].right),
      shifted<kSecondShift>(out[2].right), shifted<kSecondShift>(out[3].right),
      shifted<kSecondShift>(out[4].right), shifted<kSecondShift>(out[5].right),
      shifted<kSecondShift>(out[6].right), shifted<kSecondShift>(out[7].right)};
  store_four_rows(right_columns, 4, group, stride);
}

FASTLOADER_AVX512_INLINE void transpose_low(const __m512i* rows, __m512i& pairs_02,
                                            __m512i& pairs_13) {
  const __m512i even = _mm512_packs_epi32(rows[0], rows[2]);
  const __m512i odd = _mm512_packs_epi32(rows[1], rows[3]);
  const __m512i upper = _mm512_unpacklo_epi32(even, odd);
  const __m512i lower = _mm512_unpackhi_epi32(even, odd);
  pairs_13 = _mm512_unpacklo_epi64(upper, lower);
  pairs_02 = _mm512_unpackhi_epi64(upper, lower);
}

/// The 16 first numbers of two blocks, in two lanes each.
FASTLOADER_AVX512_INLINE __m512i two_low_blocks(Group group, const Quantization& quantization) {
  const auto* first = reinterpret_cast<const __m256i*>(group[0]->coefficients);
  const auto* second = reinterpret_cast<const __m256i*>(group[1]->coefficients);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(first)),
                                          _mm256_load_si256(second), 1);
  return _mm512_mullo_epi16(taken(both, kLowFilePlaces), quantization.low);
}

/// The second pass for four rows from `first` on.
FASTLOADER_AVX512_INLINE void finish_low_rows(const __m512i (&rows)[8], size_t first, Group group,
                                              size_t stride) {
  __m512i pairs_02;
  __m512i pairs_13;
  transpose_low(rows + first, pairs_02, pairs_13);
  __m512i columns[8];
  transform_low<kSecondShift>(pairs_02, pairs_13, columns);
  store_four_rows(columns, first, group, stride);
}

FASTLOADER_AVX512 void transform_low_blocks(Group group, const Quantization& quantization,
                                            size_t stride) {
  const __m512i first = two_low_blocks(group, quantization);
  const __m512i second = two_low_blocks(group + 2, quantization);
  __m512i pairs_02 = _mm512_shuffle_i64x2(first, second, 0x88);
  __m512i pairs_13 = _mm512_shuffle_i64x2(first, second, 0xdd);
  if (beyond_limit(pairs_02)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear_low(*group[0]);
  clear_low(*group[1]);
  clear_low(*group[2]);
  clear_low(*group[3]);

  __m512i rows[8];
  transform_low<kFirstShift>(pairs_02, pairs_13, rows);
  finish_low_rows(rows, 0, group, stride);
  finish_low_rows(rows, 4, group, stride);
}

}  // namespace

FASTLOADER_AVX512 void inverse_dct_avx512(const JpegBlock* blocks, size_t count,
                                          const uint16_t* quantization, size_t stride) {
  const Quantization own = arranged(quantization);
  transform_in_groups<kGroup>(
      blocks, count, [&](Group group) { transform_low_blocks(group, own, stride); },
      [&](Group group) { transform_full(group, own, stride); });
}

}  // namespace fastloader

#endif
