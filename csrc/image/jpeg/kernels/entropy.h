#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/bit_reader.h"
#include "image/jpeg/huffman.h"
#include "image/jpeg/kernels/pixels.h"

namespace fastloader {

// From entropy-coded bytes to coefficients, of sequential files.

/// A block takes at most a difference of 16 + 15 bits and 63 coefficients of as many.
constexpr size_t kMostBlockBytes = (kJpegBlock * (kMaxCodeLength + 15) + 7) / 8;
constexpr size_t kMostMcuBytes = kMaxMcuBlocks * kMostBlockBytes;

/// A run decodes no more blocks of a component than this.
constexpr size_t kMostRunBlocks = 64;
/// A decoder may write so many coefficients behind a block before it knows that they are no part of
/// it, and makes them 0 again.
constexpr size_t kCoefficientSlack = 32;

/// The blocks of a component that a run has decoded.
struct JpegBlocks {
  alignas(64) int16_t coefficients[kMostRunBlocks * kJpegBlock + kCoefficientSlack] = {};
  JpegBlock blocks[kMostRunBlocks];
  size_t count = 0;
};

/// One of an MCU's blocks.
struct McuBlock {
  const DcTable* dc = nullptr;
  const AcTable* ac = nullptr;
  size_t component = 0;
  uint8_t* samples = nullptr;  ///< where the next one goes; moved by `step` after each MCU
  size_t step = 0;
  size_t stride = 0;
  uint16_t factor = 0;  ///< that the first coefficient is multiplied with
};

/// A stretch of MCUs in one row of the picture.
struct McuRun {
  BitReader reader;
  /// An MCU is begun only while the reader's next byte is not behind this one, so that what it
  /// takes at most is there.
  const uint8_t* low_water = nullptr;
  int32_t prediction[kMaxOwnComponents] = {};
  McuBlock block[kMaxMcuBlocks];
  size_t blocks = 0;
  /// Bit b: block b of each MCU is decoded. The others are passed over.
  uint32_t wanted = 0;
  JpegBlocks* decoded[kMaxOwnComponents] = {};
  bool damaged = false;
};

/// What is left of a scan's bytes.
struct Unstuffed {
  const uint8_t* in = nullptr;  ///< the first byte that was not taken
  uint8_t* out = nullptr;       ///< behind the last that was written
  bool ended = false;           ///< `in` is at a marker, or at the end of the file
};

struct JpegEntropyKernels {
  /// Copies bytes without the zero that is stuffed behind each 0xff, up to a marker. Fills at most
  /// the space up to `out_end`, and may write 64 bytes behind that.
  Unstuffed (*unstuff)(const uint8_t* in, const uint8_t* in_end, uint8_t* out, uint8_t* out_end);

  /// Decodes up to `mcus` of them, and returns how many it has done: fewer where bytes are missing
  /// or damaged. Blocks that have the first coefficient only become samples at once.
  size_t (*decode)(McuRun& run, size_t mcus);

  /// The same for MCUs of which no block is wanted.
  size_t (*skip)(McuRun& run, size_t mcus);
};

extern const JpegEntropyKernels kJpegEntropyScalar;
#if defined(__x86_64__)
extern const JpegEntropyKernels kJpegEntropyAvx2;  // and BMI 2
#elif defined(__aarch64__)
extern const JpegEntropyKernels kJpegEntropyNeon;
#endif

}  // namespace fastloader
