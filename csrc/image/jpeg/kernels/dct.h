#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "image/jpeg/kernels/pixels.h"
#include "image/jpeg/zigzag.h"

namespace fastloader {

// JpegPixelKernels::inverse_dct of each instruction set.
void inverse_dct_scalar(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                        size_t stride);
#if defined(__x86_64__)
void inverse_dct_avx2(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                      size_t stride);
void inverse_dct_avx512(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                        size_t stride);
#elif defined(__aarch64__)
void inverse_dct_neon(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                      size_t stride);
#endif

}  // namespace fastloader

namespace fastloader::jpeg_dct {

// The inverse transform of jidctint.c ("islow"): first each column, then each row, by the flow
// graph of Loeffler, Ligtenberg and Moschytz, in libjpeg-turbo's arithmetic for x86:
//
// - Numbers have 16 bits. A coefficient times its factor, and a sum of two numbers, are the lower
//   16 bits of what they should be.
// - Sums of products have 32 bits, and need no more, whatever the numbers are. So it does not
//   matter in which order they are made.
// - The numbers that come of a pass are clipped to 16 bits.
// - Where the rows behind the first are zero, the first pass is a shift to the left that drops the
//   upper bits and does not clip.
//
// No encoder writes what makes the first and the last of these visible.

/// Of the factors.
constexpr int kFractionBits = 13;

/// The first pass leaves 2 bits of the fraction to the second, which divides by 8 as well.
constexpr int kFirstShift = kFractionBits - 2;
constexpr int kSecondShift = kFractionBits + 2 + 3;

constexpr int fixed(double factor) { return static_cast<int>(factor * (1 << kFractionBits) + 0.5); }

/// Of two numbers, which are multiplied and added in one instruction.
struct Factors {
  int16_t first;
  int16_t second;
};

constexpr Factors factors(int first, int second) {
  return {static_cast<int16_t>(first), static_cast<int16_t>(second)};
}

// What comes out at k and at 7 - k is even[k] + odd[k] and even[k] - odd[k].
//
// even[0] and even[3] are (in 0 + in 4) plus or minus a sum of in 2 and in 6; even[1] and even[2]
// are (in 0 - in 4) plus or minus another one.
constexpr Factors kEven26[2] = {
    factors(fixed(0.541196100) + fixed(0.765366865), fixed(0.541196100)),
    factors(fixed(0.541196100), fixed(0.541196100) - fixed(1.847759065))};

// odd[k] is a sum of two of the other inputs, and of (in 3 + in 7) and (in 1 + in 5): of in 7 and
// in 1 for 0 and 3, of in 3 and in 5 for 1 and 2.
constexpr Factors kOdd[4] = {factors(-fixed(0.899976223), fixed(1.501321110) - fixed(0.899976223)),
                             factors(fixed(3.072711026) - fixed(2.562915447), -fixed(2.562915447)),
                             factors(-fixed(2.562915447), fixed(2.053119869) - fixed(2.562915447)),
                             factors(fixed(0.298631336) - fixed(0.899976223), -fixed(0.899976223))};

/// The sums' part in odd[0] and odd[2], and in odd[1] and odd[3].
constexpr Factors kOddSums[2] = {
    factors(fixed(1.175875602), fixed(1.175875602) - fixed(0.390180644)),
    factors(fixed(1.175875602) - fixed(1.961570560), fixed(1.175875602))};

constexpr int64_t size_of(Factors factors) {
  const int64_t first = factors.first;
  const int64_t second = factors.second;
  return (first < 0 ? -first : first) + (second < 0 ? -second : second);
}

constexpr bool sums_have_32_bits() {
  for (size_t k = 0; k < 4; ++k) {
    const int64_t even = (1 << kFractionBits) + size_of(kEven26[k % 3 == 0 ? 0 : 1]);
    const int64_t odd = size_of(kOdd[k]) + size_of(kOddSums[k % 2]);
    if ((even + odd) * -INT16_MIN + (1 << (kSecondShift - 1)) > INT32_MAX) return false;
  }
  return true;
}
static_assert(sums_have_32_bits());

// --- blocks with few coefficients ---------------------------------------------------------------

/// With no other coefficients than these in the file's order, the last four rows are zero, and so
/// are the last four columns.
constexpr uint32_t kLowCoefficients = 10;

/// even[k] of in 0 and in 2.
constexpr Factors kLowEven02[4] = {
    factors(1 << kFractionBits, kEven26[0].first), factors(1 << kFractionBits, kEven26[1].first),
    factors(1 << kFractionBits, -kEven26[1].first), factors(1 << kFractionBits, -kEven26[0].first)};

/// odd[k] of in 1 and in 3.
constexpr Factors kLowOdd13[4] = {factors(kOdd[0].second + kOddSums[0].second, kOddSums[0].first),
                                  factors(kOddSums[1].second, kOdd[1].first + kOddSums[1].first),
                                  factors(kOddSums[0].second, kOdd[2].first + kOddSums[0].first),
                                  factors(kOdd[3].second + kOddSums[1].second, kOddSums[1].first)};

/// A number of the first row that is less than minus this, or not less than this, would be clipped
/// where the first pass must not clip. Vectors do not look for that case: they leave groups with
/// such a number to transform_one_by_one().
constexpr int16_t kFirstRowLimit = 1 << 13;

// --- the order of coefficients ------------------------------------------------------------------

struct FileOrder {
  uint8_t at[kJpegBlock];
};

constexpr FileOrder make_file_order() {
  FileOrder order{};
  for (size_t k = 0; k < kJpegBlock; ++k) order.at[kZigzag[k]] = static_cast<uint8_t>(k);
  return order;
}

/// Where a file has the coefficient of a row and a column.
constexpr size_t in_file(size_t row, size_t column) {
  return make_file_order().at[row * kJpegEdge + column];
}

/// The order in which the columns lie in registers: side by side those that the second pass
/// multiplies and adds, so that it finds them as pairs after half of a transposition.
constexpr size_t kColumns[kJpegEdge] = {0, 4, 2, 6, 7, 1, 3, 5};

/// The same where there are no others.
constexpr size_t kLowColumns[4] = {1, 3, 0, 2};

// --- blocks in groups ---------------------------------------------------------------------------

/// Hands all blocks to `low` and `full` in groups of kGroup addresses, those with few coefficients
/// apart from the others. What is missing in the last group is its last block once more.
template <size_t kGroup, class Low, class Full>
void transform_in_groups(const JpegBlock* blocks, size_t count, const Low& low, const Full& full) {
  constexpr size_t kSorted = 64;
  const JpegBlock* order[kSorted + kGroup - 1];
  for (size_t begin = 0; begin < count; begin += kSorted) {
    const size_t end = std::min(count - begin, kSorted);
    // Which kind comes next is chance, so that a branch would be mispredicted.
    size_t lows = 0;
    size_t fulls = end;
    for (size_t i = 0; i < end; ++i) {
      const JpegBlock* block = blocks + begin + i;
      const size_t is_low = block->last < kLowCoefficients ? 1 : 0;
      fulls -= 1 - is_low;
      order[is_low != 0 ? lows : fulls] = block;
      lows += is_low;
    }
    std::fill_n(order + end, kGroup - 1, order[end - 1]);
    for (size_t i = 0; i < end; i += kGroup) {
      if (std::min(i + kGroup, end) <= lows) {
        low(order + i);
      } else {
        full(order + i);
      }
    }
  }
}

/// For groups with a number in their first row beyond kFirstRowLimit.
template <size_t kGroup>
void transform_one_by_one(const JpegBlock* const* group, const uint16_t* quantization,
                          size_t stride) {
  for (size_t i = 0; i < kGroup; ++i) {
    if (i != 0 && group[i] == group[i - 1]) break;
    inverse_dct_scalar(group[i], 1, quantization, stride);
  }
}

}  // namespace fastloader::jpeg_dct
