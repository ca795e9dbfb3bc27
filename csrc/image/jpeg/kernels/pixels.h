#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/jpeg/zigzag.h"

namespace fastloader {

// From coefficients to rows of RGB, with the bytes of libjpeg-turbo's x86 code: the accurate
// integer transform ("islow"), "fancy" upsampling, and the conversion of YCbCr. Every
// implementation gives the same bytes, also for values that no encoder writes.

/// A block on its way from coefficients to samples.
struct JpegBlock {
  /// 64, in the order of the file (zigzag), not yet multiplied; aligned to 64 bytes. Blocks that
  /// follow each other in a list need not lie behind each other. The kernel leaves zeros there.
  int16_t* coefficients;
  uint8_t* samples;  ///< where the first of 8 rows of 8 goes
  uint32_t last;     ///< no coefficient behind this one differs from 0; 1 to 63
};

/// How many bytes behind the last sample of a row a kernel may read, and how many *samples* behind
/// the last one that is asked for it may write: 3 bytes each where it writes RGB.
constexpr size_t kJpegSlack = 64;

struct JpegPixelKernels {
  /// Writes the samples of all blocks of one component. `quantization` are 64 factors, row by row
  /// (not in zigzag order), aligned to 64 bytes. Rows of samples begin `stride` bytes apart.
  void (*inverse_dct)(const JpegBlock* blocks, size_t count, const uint16_t* quantization,
                      size_t stride);

  /// Doubles a row's width: 2 * count samples, each 3/4 of the sample that it lies in and 1/4 of
  /// the nearer neighbour. in[-1] and in[count] are read; at the picture's edges the caller has put
  /// a copy of the edge there.
  void (*widen)(const uint8_t* in, size_t count, uint8_t* out);

  /// The same for a row between two others: `near` counts 3/4, `far` 1/4. Makes one of the two rows
  /// that come of each.
  void (*widen_between)(const uint8_t* near, const uint8_t* far, size_t count, uint8_t* out);

  /// A row between two others, of the same width: (3 * near + far + bias) / 4. libjpeg's `bias` is
  /// 1 for the upper of the two rows that come of `near`, and 2 for the lower.
  void (*between)(const uint8_t* near, const uint8_t* far, size_t count, unsigned bias,
                  uint8_t* out);

  /// `count` pixels: red, green, blue, red, ...
  void (*ycc_to_rgb)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                     uint8_t* rgb);
  void (*grey_to_rgb)(const uint8_t* y, size_t count, uint8_t* rgb);
};

extern const JpegPixelKernels kJpegPixelsScalar;
#if defined(__x86_64__)
extern const JpegPixelKernels kJpegPixelsAvx2;
extern const JpegPixelKernels kJpegPixelsAvx512;      // AVX-512 F, BW, VL
extern const JpegPixelKernels kJpegPixelsAvx512Vbmi;  // and VBMI
#elif defined(__aarch64__)
extern const JpegPixelKernels kJpegPixelsNeon;
#endif

/// The 8x8 samples of a block that has no other coefficient than the first: all are equal.
inline uint8_t jpeg_flat_sample(int16_t first, uint16_t factor) {
  // 16 bits each time, which wrap: libjpeg-turbo's x86 code multiplies and shifts so.
  const auto product = static_cast<int16_t>(static_cast<uint32_t>(static_cast<uint16_t>(first)) *
                                            static_cast<uint32_t>(factor));
  const auto scaled = static_cast<int16_t>(static_cast<uint16_t>(product) << 2);
  const int sample = (scaled + 16) >> 5;
  return static_cast<uint8_t>((sample < -128 ? -128 : sample > 127 ? 127 : sample) + 128);
}

/// Writes them.
inline void write_flat_block(int16_t first, uint16_t factor, uint8_t* samples, size_t stride) {
  constexpr uint64_t kEach = 0x0101010101010101;
  const uint64_t row = kEach * jpeg_flat_sample(first, factor);
  for (size_t y = 0; y < kJpegEdge; ++y) std::memcpy(samples + y * stride, &row, sizeof row);
}

}  // namespace fastloader
