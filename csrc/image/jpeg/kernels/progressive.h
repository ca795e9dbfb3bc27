#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/bit_reader.h"
#include "image/jpeg/progressive/table.h"

namespace fastloader {

// From entropy-coded bytes to coefficients, of progressive files. Nothing is known of the other
// scans but which coefficients were not 0 after those before.

/// One of the blocks of an MCU, in a scan of first coefficients.
struct FirstBlock {
  const ProgressiveTable* table = nullptr;
  size_t component = 0;   ///< of the scan
  int16_t* to = nullptr;  ///< where the next coefficient goes; moved by `step` after each MCU
  size_t step = 0;
};

/// Where the decoder of a scan stands.
struct ScanRun {
  /// Not empty: a look-up comes before a refill.
  BitReader reader;
  /// If the reader's next byte is behind this one, bits were taken that are not there. It is looked
  /// at after each MCU.
  const uint8_t* limit = nullptr;
  unsigned low = 0;  ///< the place of the bit that the scan ends with

  // In a scan of first coefficients.
  int32_t prediction[kMaxOwnComponents] = {};
  FirstBlock block[kMaxMcuBlocks];
  size_t blocks = 0;

  // In a scan of a band.
  const ProgressiveTable* table = nullptr;
  unsigned first = 0;
  unsigned last = 0;
  uint32_t ended = 0;  ///< in so many of the next blocks the band has no (further new) coefficient

  /// Bit k: coefficient k belongs to the band.
  uint64_t band() const { return ~uint64_t{0} << first & ~uint64_t{0} >> (63 - last); }
};

/// What is wanted of blocks.
enum class BlockPart : uint8_t { kNothing, kPlaces, kCoefficients };

/// Blocks side by side.
struct BandBlocks {
  size_t count = 0;
  /// Of each: bit k if coefficient k is not 0. With kNothing they are not brought up to date.
  uint64_t* nonzero = nullptr;
  int16_t* coefficients = nullptr;  ///< 64 of each, with kCoefficients
  BlockPart wanted = BlockPart::kNothing;
};

/// Each returns false for damage; what was decoded means nothing then.
struct JpegProgressiveKernels {
  bool (*read_first)(ScanRun& run, size_t mcus);
  bool (*read_band)(ScanRun& run, const BandBlocks& blocks);
  bool (*refine_band)(ScanRun& run, const BandBlocks& blocks);
};

extern const JpegProgressiveKernels kJpegProgressiveScalar;
#if defined(__x86_64__)
extern const JpegProgressiveKernels kJpegProgressiveBmi2;  // and AVX2
extern const JpegProgressiveKernels kJpegProgressiveAvx2;  // without the slow part of BMI 2
#elif defined(__aarch64__)
extern const JpegProgressiveKernels kJpegProgressiveNeon;
#endif

/// A coefficient from the bits that a scan has of it; the others are 0 so far.
inline int16_t coefficient_of(int64_t value, unsigned low) {
  return static_cast<int16_t>(static_cast<uint64_t>(value) << low);
}

}  // namespace fastloader
