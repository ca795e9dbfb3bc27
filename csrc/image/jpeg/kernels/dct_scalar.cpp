#include <algorithm>
#include <cstring>

#include "image/jpeg/kernels/dct.h"

namespace fastloader {
namespace {

using namespace jpeg_dct;

int16_t lower_bits(int32_t number) { return static_cast<int16_t>(static_cast<uint16_t>(number)); }

int16_t clipped(int32_t number) {
  return static_cast<int16_t>(std::clamp(number, int32_t{INT16_MIN}, int32_t{INT16_MAX}));
}

int32_t sum(int16_t first, int16_t second, Factors factors) {
  return first * factors.first + second * factors.second;
}

/// Of a row or a column, whose numbers stand `step` apart.
template <int kShift>
void transform(int16_t* numbers, size_t step) {
  int16_t in[kJpegEdge];
  for (size_t i = 0; i < kJpegEdge; ++i) in[i] = numbers[i * step];
  const int32_t half = 1 << (kShift - 1);
  const int32_t upper = lower_bits(in[0] + in[4]) * (1 << kFractionBits) + half;
  const int32_t lower = lower_bits(in[0] - in[4]) * (1 << kFractionBits) + half;
  const int32_t turned[2] = {sum(in[2], in[6], kEven26[0]), sum(in[2], in[6], kEven26[1])};
  const int32_t even[4] = {upper + turned[0], lower + turned[1], lower - turned[1],
                           upper - turned[0]};
  const int16_t third = lower_bits(in[3] + in[7]);
  const int16_t fourth = lower_bits(in[1] + in[5]);
  const int32_t sums[2] = {sum(third, fourth, kOddSums[0]), sum(third, fourth, kOddSums[1])};
  const int32_t odd[4] = {sum(in[7], in[1], kOdd[0]) + sums[0],  //
                          sum(in[3], in[5], kOdd[1]) + sums[1],  //
                          sum(in[3], in[5], kOdd[2]) + sums[0],  //
                          sum(in[7], in[1], kOdd[3]) + sums[1]};
  for (size_t k = 0; k < 4; ++k) {
    numbers[k * step] = clipped((even[k] + odd[k]) >> kShift);
    numbers[(7 - k) * step] = clipped((even[k] - odd[k]) >> kShift);
  }
}

void transform_block(const JpegBlock& block, const uint16_t* quantization, size_t stride) {
  int16_t numbers[kJpegBlock];
  bool one_row = true;
  for (size_t k = 0; k < kJpegBlock; ++k) {
    const size_t place = kZigzag[k];
    numbers[place] = lower_bits(block.coefficients[k] * quantization[place]);
    if (place >= kJpegEdge && block.coefficients[k] != 0) one_row = false;
  }
  std::memset(block.coefficients, 0, kJpegBlock * sizeof(int16_t));
  for (size_t column = 0; column < kJpegEdge; ++column) {
    if (one_row) {
      const int16_t shifted = lower_bits(numbers[column] * 4);
      for (size_t row = 0; row < kJpegEdge; ++row) numbers[row * kJpegEdge + column] = shifted;
    } else {
      transform<kFirstShift>(numbers + column, kJpegEdge);
    }
  }
  for (size_t row = 0; row < kJpegEdge; ++row) {
    int16_t* const line = numbers + row * kJpegEdge;
    transform<kSecondShift>(line, 1);
    for (size_t i = 0; i < kJpegEdge; ++i) {
      block.samples[row * stride + i] = static_cast<uint8_t>(
          std::clamp(line[i], int16_t{INT8_MIN}, int16_t{INT8_MAX}) - INT8_MIN);
    }
  }
}

}  // namespace

void inverse_dct_scalar(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                        size_t stride) {
  for (size_t i = 0; i < count; ++i) transform_block(blocks[i], quantization, stride);
}

}  // namespace fastloader
