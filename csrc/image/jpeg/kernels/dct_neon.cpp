#include "image/jpeg/kernels/dct.h"

#if defined(__aarch64__)

#include <arm_neon.h>

namespace fastloader {
namespace {

using namespace jpeg_dct;

constexpr size_t kGroup = 1;
using Group = const JpegBlock* const*;

// --- from the file's order to rows --------------------------------------------------------------

/// Where the bytes of a block's rows are in the file. Those from 64 on are among the other 32
/// coefficients.
struct RowPlaces {
  uint8_t bytes[kJpegBlock * sizeof(int16_t)];
};

constexpr RowPlaces make_row_places() {
  RowPlaces places{};
  for (size_t k = 0; k < kJpegBlock; ++k) {
    places.bytes[2 * kZigzag[k]] = static_cast<uint8_t>(2 * k);
    places.bytes[2 * kZigzag[k] + 1] = static_cast<uint8_t>(2 * k + 1);
  }
  return places;
}

constexpr RowPlaces kRowPlaces = make_row_places();

/// The numbers of a block in the order of the file.
struct InFile {
  uint8x16x4_t first;
  uint8x16x4_t others;
};

inline InFile load(const int16_t* coefficients) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(coefficients);
  return {vld1q_u8_x4(bytes), vld1q_u8_x4(bytes + 64)};
}

/// A row, times its factors.
inline int16x8_t row_of(const InFile& in, size_t row, const uint16_t* quantization) {
  const uint8x16_t places = vld1q_u8(kRowPlaces.bytes + 16 * row);
  // A place beyond the table gives 0 here, and leaves what there is below.
  const uint8x16_t some = vqtbl4q_u8(in.first, places);
  const uint8x16_t all = vqtbx4q_u8(some, in.others, vsubq_u8(places, vdupq_n_u8(64)));
  return vmulq_s16(vreinterpretq_s16_u8(all),
                   vreinterpretq_s16_u16(vld1q_u16(quantization + kJpegEdge * row)));
}

/// Its first four numbers, if they are among the first 16 of the file, or zero.
inline int16x4_t low_row_of(uint8x16x2_t first, size_t row, const uint16_t* quantization) {
  const uint8x8_t all = vqtbl2_u8(first, vld1_u8(kRowPlaces.bytes + 16 * row));
  return vmul_s16(vreinterpret_s16_u8(all),
                  vreinterpret_s16_u16(vld1_u16(quantization + kJpegEdge * row)));
}

inline bool beyond_limit(int16x8_t first_row) {
  const uint16x8_t positive =
      vreinterpretq_u16_s16(vaddq_s16(first_row, vdupq_n_s16(kFirstRowLimit)));
  return vmaxvq_u16(positive) >= 2 * kFirstRowLimit;
}

// --- a pass -------------------------------------------------------------------------------------

inline int32x4_t sum(int16x4_t first, int16x4_t second, Factors factors) {
  return vmlal_n_s16(vmull_n_s16(first, factors.first), second, factors.second);
}

inline int32x4_t sum(int32x4_t other, int16x4_t first, int16x4_t second, Factors factors) {
  return vmlal_n_s16(vmlal_n_s16(other, first, factors.first), second, factors.second);
}

/// Of four columns (or rows). `even` has a half of what will be dropped.
struct Sums {
  int32x4_t even[4];
  int32x4_t odd[4];
};

inline Sums transform(const int16x4_t (&in)[8], int32x4_t half) {
  Sums sums;
  const int32x4_t upper = vaddq_s32(vshll_n_s16(vadd_s16(in[0], in[4]), kFractionBits), half);
  const int32x4_t lower = vaddq_s32(vshll_n_s16(vsub_s16(in[0], in[4]), kFractionBits), half);
  const int32x4_t turned[2] = {sum(in[2], in[6], kEven26[0]), sum(in[2], in[6], kEven26[1])};
  sums.even[0] = vaddq_s32(upper, turned[0]);
  sums.even[1] = vaddq_s32(lower, turned[1]);
  sums.even[2] = vsubq_s32(lower, turned[1]);
  sums.even[3] = vsubq_s32(upper, turned[0]);
  const int16x4_t third = vadd_s16(in[3], in[7]);
  const int16x4_t fourth = vadd_s16(in[1], in[5]);
  const int32x4_t both[2] = {sum(third, fourth, kOddSums[0]), sum(third, fourth, kOddSums[1])};
  sums.odd[0] = sum(both[0], in[7], in[1], kOdd[0]);
  sums.odd[1] = sum(both[1], in[3], in[5], kOdd[1]);
  sums.odd[2] = sum(both[0], in[3], in[5], kOdd[2]);
  sums.odd[3] = sum(both[1], in[7], in[1], kOdd[3]);
  return sums;
}

/// The same where the other four are zero.
inline Sums transform_low(const int16x4_t (&in)[4], int32x4_t half) {
  return {{sum(half, in[0], in[2], kLowEven02[0]), sum(half, in[0], in[2], kLowEven02[1]),
           sum(half, in[0], in[2], kLowEven02[2]), sum(half, in[0], in[2], kLowEven02[3])},
          {sum(in[1], in[3], kLowOdd13[0]), sum(in[1], in[3], kLowOdd13[1]),
           sum(in[1], in[3], kLowOdd13[2]), sum(in[1], in[3], kLowOdd13[3])}};
}

inline int32x4_t half_of(int shift) { return vdupq_n_s32(1 << (shift - 1)); }

// Written out, as in dct_avx2.cpp: GCC keeps loops over registers, and these in memory.

/// The same four columns of all rows, as the first pass leaves them.
inline void narrow(const Sums& sums, int16x4_t (&rows)[8]) {
  rows[0] = vqshrn_n_s32(vaddq_s32(sums.even[0], sums.odd[0]), kFirstShift);
  rows[1] = vqshrn_n_s32(vaddq_s32(sums.even[1], sums.odd[1]), kFirstShift);
  rows[2] = vqshrn_n_s32(vaddq_s32(sums.even[2], sums.odd[2]), kFirstShift);
  rows[3] = vqshrn_n_s32(vaddq_s32(sums.even[3], sums.odd[3]), kFirstShift);
  rows[4] = vqshrn_n_s32(vsubq_s32(sums.even[3], sums.odd[3]), kFirstShift);
  rows[5] = vqshrn_n_s32(vsubq_s32(sums.even[2], sums.odd[2]), kFirstShift);
  rows[6] = vqshrn_n_s32(vsubq_s32(sums.even[1], sums.odd[1]), kFirstShift);
  rows[7] = vqshrn_n_s32(vsubq_s32(sums.even[0], sums.odd[0]), kFirstShift);
}

/// Column kNumber of samples, less 128, from the sums of rows 0 to 3 and of rows 4 to 7. Adding
/// drops the 16 lower bits by itself.
template <size_t kNumber>
inline int8x8_t column_of(const Sums& left, const Sums& right) {
  constexpr size_t k = kNumber < 4 ? kNumber : 7 - kNumber;
  constexpr int kShift = kSecondShift - 16;
  if constexpr (kNumber < 4) {
    const int16x4_t some = vaddhn_s32(left.even[k], left.odd[k]);
    return vqshrn_n_s16(vaddhn_high_s32(some, right.even[k], right.odd[k]), kShift);
  } else {
    const int16x4_t some = vsubhn_s32(left.even[k], left.odd[k]);
    return vqshrn_n_s16(vsubhn_high_s32(some, right.even[k], right.odd[k]), kShift);
  }
}

// --- transpositions -----------------------------------------------------------------------------

inline int16x8_t from_pairs(int32x4_t pairs) { return vreinterpretq_s16_s32(pairs); }
inline int32x4_t to_pairs(int16x8_t numbers) { return vreinterpretq_s32_s16(numbers); }

/// In each half, four rows of four numbers become four columns.
inline void transpose_four(const int16x8_t (&rows)[4], int16x8_t (&columns)[4]) {
  const int16x8_t even_01 = vtrn1q_s16(rows[0], rows[1]);
  const int16x8_t odd_01 = vtrn2q_s16(rows[0], rows[1]);
  const int16x8_t even_23 = vtrn1q_s16(rows[2], rows[3]);
  const int16x8_t odd_23 = vtrn2q_s16(rows[2], rows[3]);
  columns[0] = from_pairs(vtrn1q_s32(to_pairs(even_01), to_pairs(even_23)));
  columns[1] = from_pairs(vtrn1q_s32(to_pairs(odd_01), to_pairs(odd_23)));
  columns[2] = from_pairs(vtrn2q_s32(to_pairs(even_01), to_pairs(even_23)));
  columns[3] = from_pairs(vtrn2q_s32(to_pairs(odd_01), to_pairs(odd_23)));
}

/// Two columns, with 128 for 0.
inline uint8x16_t samples_of(int8x8_t first, int8x8_t second) {
  return veorq_u8(vreinterpretq_u8_s8(vcombine_s8(first, second)), vdupq_n_u8(0x80));
}

/// Two rows: the first four samples of both, then the last four.
inline void store_two_rows(uint32x4_t rows, uint8_t* first, uint8_t* second) {
  const uint32x4_t last = vextq_u32(rows, rows, 2);
  vst1_u8(first, vreinterpret_u8_u32(vget_low_u32(vtrn1q_u32(rows, last))));
  vst1_u8(second, vreinterpret_u8_u32(vget_low_u32(vtrn2q_u32(rows, last))));
}

/// From the sums of rows 0 to 3 and of rows 4 to 7.
inline void store(const Sums& left, const Sums& right, uint8_t* to, size_t stride) {
  const uint8x16_t columns_04 = samples_of(column_of<0>(left, right), column_of<4>(left, right));
  const uint8x16_t columns_15 = samples_of(column_of<1>(left, right), column_of<5>(left, right));
  const uint8x16_t columns_26 = samples_of(column_of<2>(left, right), column_of<6>(left, right));
  const uint8x16_t columns_37 = samples_of(column_of<3>(left, right), column_of<7>(left, right));
  const uint16x8_t even_01 = vreinterpretq_u16_u8(vtrn1q_u8(columns_04, columns_15));
  const uint16x8_t odd_01 = vreinterpretq_u16_u8(vtrn2q_u8(columns_04, columns_15));
  const uint16x8_t even_23 = vreinterpretq_u16_u8(vtrn1q_u8(columns_26, columns_37));
  const uint16x8_t odd_23 = vreinterpretq_u16_u8(vtrn2q_u8(columns_26, columns_37));
  const uint32x4_t rows_04 = vreinterpretq_u32_u16(vtrn1q_u16(even_01, even_23));
  const uint32x4_t rows_15 = vreinterpretq_u32_u16(vtrn1q_u16(odd_01, odd_23));
  const uint32x4_t rows_26 = vreinterpretq_u32_u16(vtrn2q_u16(even_01, even_23));
  const uint32x4_t rows_37 = vreinterpretq_u32_u16(vtrn2q_u16(odd_01, odd_23));
  store_two_rows(rows_04, to, to + 4 * stride);
  store_two_rows(rows_15, to + stride, to + 5 * stride);
  store_two_rows(rows_26, to + 2 * stride, to + 6 * stride);
  store_two_rows(rows_37, to + 3 * stride, to + 7 * stride);
}

// --- whole blocks -------------------------------------------------------------------------------

/// The second pass for four rows, of which `left` has columns 0 to 3, and `right` the others.
inline Sums transform_rows(const int16x4_t* left, const int16x4_t* right) {
  const int16x8_t rows[4] = {vcombine_s16(left[0], right[0]), vcombine_s16(left[1], right[1]),
                             vcombine_s16(left[2], right[2]), vcombine_s16(left[3], right[3])};
  int16x8_t columns[4];
  transpose_four(rows, columns);
  return transform({vget_low_s16(columns[0]), vget_low_s16(columns[1]), vget_low_s16(columns[2]),
                    vget_low_s16(columns[3]), vget_high_s16(columns[0]), vget_high_s16(columns[1]),
                    vget_high_s16(columns[2]), vget_high_s16(columns[3])},
                   half_of(kSecondShift));
}

void transform_full(Group group, const uint16_t* quantization, size_t stride) {
  const JpegBlock& block = **group;
  const InFile file = load(block.coefficients);
  const int16x8_t in[8] = {row_of(file, 0, quantization), row_of(file, 1, quantization),
                           row_of(file, 2, quantization), row_of(file, 3, quantization),
                           row_of(file, 4, quantization), row_of(file, 5, quantization),
                           row_of(file, 6, quantization), row_of(file, 7, quantization)};
  if (beyond_limit(in[0])) return transform_one_by_one<kGroup>(group, quantization, stride);
  for (size_t i = 0; i < kJpegBlock; i += 8) vst1q_s16(block.coefficients + i, vdupq_n_s16(0));

  int16x4_t left[8];
  int16x4_t right[8];
  narrow(transform(
             {vget_low_s16(in[0]), vget_low_s16(in[1]), vget_low_s16(in[2]), vget_low_s16(in[3]),
              vget_low_s16(in[4]), vget_low_s16(in[5]), vget_low_s16(in[6]), vget_low_s16(in[7])},
             half_of(kFirstShift)),
         left);
  narrow(transform({vget_high_s16(in[0]), vget_high_s16(in[1]), vget_high_s16(in[2]),
                    vget_high_s16(in[3]), vget_high_s16(in[4]), vget_high_s16(in[5]),
                    vget_high_s16(in[6]), vget_high_s16(in[7])},
                   half_of(kFirstShift)),
         right);
  store(transform_rows(left, right), transform_rows(left + 4, right + 4), block.samples, stride);
}

void transform_low_block(Group group, const uint16_t* quantization, size_t stride) {
  const JpegBlock& block = **group;
  const uint8x16x2_t first = vld1q_u8_x2(reinterpret_cast<const uint8_t*>(block.coefficients));
  const int16x4_t in[4] = {low_row_of(first, 0, quantization), low_row_of(first, 1, quantization),
                           low_row_of(first, 2, quantization), low_row_of(first, 3, quantization)};
  if (beyond_limit(vcombine_s16(in[0], in[0]))) {
    return transform_one_by_one<kGroup>(group, quantization, stride);
  }
  vst1q_s16(block.coefficients, vdupq_n_s16(0));
  vst1q_s16(block.coefficients + 8, vdupq_n_s16(0));

  int16x4_t rows[8];
  narrow(transform_low(in, half_of(kFirstShift)), rows);
  const int16x8_t both[4] = {vcombine_s16(rows[0], rows[4]), vcombine_s16(rows[1], rows[5]),
                             vcombine_s16(rows[2], rows[6]), vcombine_s16(rows[3], rows[7])};
  int16x8_t columns[4];
  transpose_four(both, columns);
  const Sums left = transform_low({vget_low_s16(columns[0]), vget_low_s16(columns[1]),
                                   vget_low_s16(columns[2]), vget_low_s16(columns[3])},
                                  half_of(kSecondShift));
  const Sums right = transform_low({vget_high_s16(columns[0]), vget_high_s16(columns[1]),
                                    vget_high_s16(columns[2]), vget_high_s16(columns[3])},
                                   half_of(kSecondShift));
  store(left, right, block.samples, stride);
}

}  // namespace

void inverse_dct_neon(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                      size_t stride) {
  transform_in_groups<kGroup>(
      blocks, count, [&](Group group) { transform_low_block(group, quantization, stride); },
      [&](Group group) { transform_full(group, quantization, stride); });
}

}  // namespace fastloader

#endif
