#pragma once

#include "image/jpeg/kernels/dct.h"

// The inverse transform from the first pass on, over registers with a block in each lane of 128
// bits. Most instructions stay within a lane, so the blocks never meet. A file of one instruction
// set has, before it includes this,
//
//   FASTLOADER_LANES_INLINE          for what is to become part of its functions
//   FASTLOADER_LANES_INTRINSIC(name) the intrinsic of that name for its registers
//
// and in the unnamed namespace
//
//   Lanes                            its registers
//   Lanes in_each_lane(__m128i)      the same in each lane
//   __m128i lane<kLane>(Lanes)       one of them
//   bool share_bits(Lanes, Lanes)    whether a bit is set in both

namespace fastloader {
namespace {

using namespace jpeg_dct;

constexpr size_t kGroup = sizeof(Lanes) / sizeof(__m128i);
using Group = const JpegBlock* const*;

#define FASTLOADER_LANES_BINARY(name)                    \
  FASTLOADER_LANES_INLINE Lanes name(Lanes a, Lanes b) { \
    return FASTLOADER_LANES_INTRINSIC(name)(a, b);       \
  }
FASTLOADER_LANES_BINARY(add_epi16)
FASTLOADER_LANES_BINARY(sub_epi16)
FASTLOADER_LANES_BINARY(add_epi32)
FASTLOADER_LANES_BINARY(sub_epi32)
FASTLOADER_LANES_BINARY(madd_epi16)
FASTLOADER_LANES_BINARY(packs_epi16)
FASTLOADER_LANES_BINARY(packs_epi32)
FASTLOADER_LANES_BINARY(unpacklo_epi16)
FASTLOADER_LANES_BINARY(unpackhi_epi16)
FASTLOADER_LANES_BINARY(unpacklo_epi32)
FASTLOADER_LANES_BINARY(unpackhi_epi32)
FASTLOADER_LANES_BINARY(unpacklo_epi64)
FASTLOADER_LANES_BINARY(unpackhi_epi64)
FASTLOADER_LANES_BINARY(shuffle_epi8)
#undef FASTLOADER_LANES_BINARY

template <int kShift>
FASTLOADER_LANES_INLINE Lanes shifted(Lanes sums) {
  return FASTLOADER_LANES_INTRINSIC(srai_epi32)(sums, kShift);
}

FASTLOADER_LANES_INLINE Lanes each_16(int16_t number) {
  return FASTLOADER_LANES_INTRINSIC(set1_epi16)(number);
}

FASTLOADER_LANES_INLINE Lanes each_32(int32_t number) {
  return FASTLOADER_LANES_INTRINSIC(set1_epi32)(number);
}

FASTLOADER_LANES_INLINE Lanes in_each_pair(Factors factors) {
  return each_32(static_cast<uint16_t>(factors.first) | factors.second * (1 << 16));
}

FASTLOADER_LANES_INLINE Lanes sum(Lanes pairs, Factors factors) {
  return madd_epi16(pairs, in_each_pair(factors));
}

FASTLOADER_LANES_INLINE bool beyond_limit(Lanes first_row) {
  return share_bits(add_epi16(first_row, each_16(kFirstRowLimit)), each_16(-2 * kFirstRowLimit));
}

// --- a pass -------------------------------------------------------------------------------------

/// 32 bits for each of four columns (or rows), and for each of the other four.
struct Fours {
  Lanes left;
  Lanes right;
};

FASTLOADER_LANES_INLINE Fours sum(const Fours& pairs, Factors factors) {
  return {sum(pairs.left, factors), sum(pairs.right, factors)};
}

FASTLOADER_LANES_INLINE Fours plus(const Fours& a, const Fours& b) {
  return {add_epi32(a.left, b.left), add_epi32(a.right, b.right)};
}

FASTLOADER_LANES_INLINE Fours minus(const Fours& a, const Fours& b) {
  return {sub_epi32(a.left, b.left), sub_epi32(a.right, b.right)};
}

FASTLOADER_LANES_INLINE Fours pairs_of(Lanes first, Lanes second) {
  return {unpacklo_epi16(first, second), unpackhi_epi16(first, second)};
}

/// What the first pass leaves.
FASTLOADER_LANES_INLINE Lanes narrowed(const Fours& sums) {
  return packs_epi32(shifted<kFirstShift>(sums.left), shifted<kFirstShift>(sums.right));
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
FASTLOADER_LANES_INLINE void transform(const Inputs& in, Fours (&out)[8]) {
  const Fours turned[2] = {sum(in.pairs_26, kEven26[0]), sum(in.pairs_26, kEven26[1])};
  const Fours even[4] = {plus(in.upper, turned[0]), plus(in.lower, turned[1]),
                         minus(in.lower, turned[1]), minus(in.upper, turned[0])};
  const Fours both = {add_epi16(in.pairs_71.left, in.pairs_35.left),
                      add_epi16(in.pairs_71.right, in.pairs_35.right)};
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
FASTLOADER_LANES_INLINE void transform_low(Lanes pairs_02, Lanes pairs_13, Lanes (&out)[8]) {
  const Lanes half = each_32(1 << (kShift - 1));
  const Lanes even = add_epi32(sum(pairs_02, kLowEven02[kNumber]), half);
  const Lanes odd = sum(pairs_13, kLowOdd13[kNumber]);
  out[kNumber] = shifted<kShift>(add_epi32(even, odd));
  out[7 - kNumber] = shifted<kShift>(sub_epi32(even, odd));
}

template <int kShift>
FASTLOADER_LANES_INLINE void transform_low(Lanes pairs_02, Lanes pairs_13, Lanes (&out)[8]) {
  transform_low<kShift, 0>(pairs_02, pairs_13, out);
  transform_low<kShift, 1>(pairs_02, pairs_13, out);
  transform_low<kShift, 2>(pairs_02, pairs_13, out);
  transform_low<kShift, 3>(pairs_02, pairs_13, out);
}

// --- columns to samples -------------------------------------------------------------------------

/// Four rows, as columns of bytes, become four times four samples.
FASTLOADER_LANES_INLINE Lanes four_by_four(const Lanes* columns) {
  const Lanes bytes =
      packs_epi16(packs_epi32(columns[0], columns[1]), packs_epi32(columns[2], columns[3]));
  const Lanes turned = in_each_lane(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13,  //
                                                  2, 6, 10, 14, 3, 7, 11, 15));
  return shuffle_epi8(bytes ^ FASTLOADER_LANES_INTRINSIC(set1_epi8)(INT8_MIN), turned);
}

FASTLOADER_LANES_INLINE void store_two_rows(__m128i rows, uint8_t* to, size_t stride) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), rows);
  _mm_storeh_pi(reinterpret_cast<__m64*>(to + stride), _mm_castsi128_ps(rows));
}

template <size_t kBlock = 0>
FASTLOADER_LANES_INLINE void store_lanes(Lanes two, Lanes others, size_t first, Group group,
                                         size_t stride) {
  uint8_t* to = group[kBlock]->samples + first * stride;
  store_two_rows(lane<kBlock>(two), to, stride);
  store_two_rows(lane<kBlock>(others), to + 2 * stride, stride);
  if constexpr (kBlock + 1 < kGroup) store_lanes<kBlock + 1>(two, others, first, group, stride);
}

/// Four of the rows, from `first` on.
FASTLOADER_LANES_INLINE void store_four_rows(const Lanes (&columns)[8], size_t first, Group group,
                                             size_t stride) {
  const Lanes left = four_by_four(columns);
  const Lanes right = four_by_four(columns + 4);
  store_lanes(unpacklo_epi32(left, right), unpackhi_epi32(left, right), first, group, stride);
}

// --- whole blocks -------------------------------------------------------------------------------

/// In each lane four rows of four pairs, which become four columns.
FASTLOADER_LANES_INLINE void transpose(const Lanes* rows, Lanes (&columns)[4]) {
  const Lanes upper_left = unpacklo_epi32(rows[0], rows[1]);
  const Lanes upper_right = unpackhi_epi32(rows[0], rows[1]);
  const Lanes lower_left = unpacklo_epi32(rows[2], rows[3]);
  const Lanes lower_right = unpackhi_epi32(rows[2], rows[3]);
  columns[0] = unpacklo_epi64(upper_left, lower_left);
  columns[1] = unpackhi_epi64(upper_left, lower_left);
  columns[2] = unpacklo_epi64(upper_right, lower_right);
  columns[3] = unpackhi_epi64(upper_right, lower_right);
}

// 16 bits become 32 with their fraction, and a half of what their pass drops.

constexpr int kWiden = 16 - kFractionBits;

FASTLOADER_LANES_INLINE Fours with_fraction(Lanes row) {
  // The half is put below the 16 bits, before they get their fraction.
  const Fours wide = pairs_of(each_16(1 << (kFirstShift - 1 + kWiden)), row);
  return {shifted<kWiden>(wide.left), shifted<kWiden>(wide.right)};
}

/// Pairs of in 0 and in 4 become their sum and their difference: 16 bits, then the fraction.
FASTLOADER_LANES_INLINE void add_and_subtract(Lanes pairs, Lanes& upper, Lanes& lower) {
  const Lanes half = each_32(1 << (kSecondShift - 1));
  const Lanes first = FASTLOADER_LANES_INTRINSIC(slli_epi32)(pairs, 16);
  const Lanes second = pairs & in_each_pair({0, -1});
  upper = add_epi32(shifted<kWiden>(add_epi32(first, second)), half);
  lower = add_epi32(shifted<kWiden>(sub_epi32(first, second)), half);
}

FASTLOADER_LANES_INLINE void transform_and_store(const Inputs& in, Group group, size_t stride) {
  Fours out[8];
  transform(in, out);
  const Lanes rows[8] = {narrowed(out[0]), narrowed(out[1]), narrowed(out[2]), narrowed(out[3]),
                         narrowed(out[4]), narrowed(out[5]), narrowed(out[6]), narrowed(out[7])};

  // Rows 0 to 3 are now left, and the others right.
  Lanes left[4];
  Lanes right[4];
  transpose(rows, left);
  transpose(rows + 4, right);
  Fours upper;
  Fours lower;
  add_and_subtract(left[0], upper.left, lower.left);
  add_and_subtract(right[0], upper.right, lower.right);
  transform({upper, lower, {left[1], right[1]}, {left[2], right[2]}, {left[3], right[3]}}, out);
  const Lanes left_columns[8] = {
      shifted<kSecondShift>(out[0].left), shifted<kSecondShift>(out[1].left),
      shifted<kSecondShift>(out[2].left), shifted<kSecondShift>(out[3].left),
      shifted<kSecondShift>(out[4].left), shifted<kSecondShift>(out[5].left),
      shifted<kSecondShift>(out[6].left), shifted<kSecondShift>(out[7].left)};
  store_four_rows(left_columns, 0, group, stride);
  const Lanes right_columns[8] = {
      shifted<kSecondShift>(out[0].right), shifted<kSecondShift>(out[1].right),
      shifted<kSecondShift>(out[2].right), shifted<kSecondShift>(out[3].right),
      shifted<kSecondShift>(out[4].right), shifted<kSecondShift>(out[5].right),
      shifted<kSecondShift>(out[6].right), shifted<kSecondShift>(out[7].right)};
  store_four_rows(right_columns, 4, group, stride);
}

// --- blocks with few coefficients ---------------------------------------------------------------

/// In each lane four rows, of four columns each, become pairs of columns: 1 with 3, and 0 with 2.
FASTLOADER_LANES_INLINE void transpose_low(const Lanes* rows, Lanes& pairs_02, Lanes& pairs_13) {
  const Lanes even = packs_epi32(rows[0], rows[2]);
  const Lanes odd = packs_epi32(rows[1], rows[3]);
  const Lanes upper = unpacklo_epi32(even, odd);
  const Lanes lower = unpackhi_epi32(even, odd);
  pairs_13 = unpacklo_epi64(upper, lower);
  pairs_02 = unpackhi_epi64(upper, lower);
}

/// The second pass for four rows from `first` on.
FASTLOADER_LANES_INLINE void finish_low_rows(const Lanes (&rows)[8], size_t first, Group group,
                                             size_t stride) {
  Lanes pairs_02;
  Lanes pairs_13;
  transpose_low(rows + first, pairs_02, pairs_13);
  Lanes columns[8];
  transform_low<kSecondShift>(pairs_02, pairs_13, columns);
  store_four_rows(columns, first, group, stride);
}

FASTLOADER_LANES_INLINE void transform_and_store_low(Lanes pairs_02, Lanes pairs_13, Group group,
                                                     size_t stride) {
  Lanes rows[8];
  transform_low<kFirstShift>(pairs_02, pairs_13, rows);
  finish_low_rows(rows, 0, group, stride);
  finish_low_rows(rows, 4, group, stride);
}

}  // namespace
}  // namespace fastloader
