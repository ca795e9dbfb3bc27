#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/file.h"

namespace fastloader {

// The seek index of a sequential JPEG without restarts: where parts of each row of MCUs begin, so
// that a decoder need not parse what stands before a crop. Each part ("segment") can be decoded by
// itself. docs/seek-index.md describes the format, byte by byte.

constexpr uint8_t kSeekVersion = 1;
constexpr uint32_t kMostSegments = 255;  // of a row
constexpr size_t kSeekHeaderBytes = 24;
constexpr size_t kSeekChecksumBytes = 8;
constexpr unsigned kMostPositionBits = 36;    // of a file of 4 GiB
constexpr unsigned kMostPredictionBits = 16;  // clean encoders write 12
/// Bits are numbered from a byte's highest on, as the decoder takes them.
constexpr unsigned kSeekByteBits = 8;

/// Where an MCU begins.
struct SeekPlace {
  uint64_t bit = 0;  ///< from the first bit of the scan on, as it lies in the file, with stuffing
  int32_t prediction[kMaxOwnComponents] = {};  ///< of each component's first coefficient

  bool operator==(const SeekPlace& other) const {
    return bit == other.bit && prediction[0] == other.prediction[0] &&
           prediction[1] == other.prediction[1] && prediction[2] == other.prediction[2];
  }
};

/// The MCU of a row at which one of so many segments begins; for the one behind the last, the row's
/// length.
constexpr uint32_t first_mcu_of_segment(uint32_t segment, uint32_t segments, uint32_t mcus_across) {
  return static_cast<uint32_t>(uint64_t{segment} * mcus_across / segments);
}

/// Reads an index that lies in memory.
class SeekIndex {
 public:
  /// Returns false for an index that is damaged, that another version wrote, or that belongs to
  /// another file. `hash` is the xxh3() of all bytes of the file. The index must stay.
  bool open(const uint8_t* index, size_t index_size, const JpegFile& file, size_t file_size,
            uint64_t hash);

  uint32_t segments() const { return segments_; }
  uint32_t first_mcu(uint32_t segment) const {
    return first_mcu_of_segment(segment, segments_, mcus_across_);
  }
  /// The segment of a row in which an MCU of the row lies.
  uint32_t segment_of(uint32_t mcu) const;

  /// Segments are numbered through the whole picture.
  uint64_t count() const { return uint64_t{segments_} * mcus_down_; }
  SeekPlace place(uint64_t segment) const;

 private:
  uint64_t bits(uint64_t at, unsigned width) const;

  const uint8_t* entries_ = nullptr;
  uint32_t segments_ = 0;
  uint32_t mcus_across_ = 0;
  uint32_t mcus_down_ = 0;
  unsigned position_bits_ = 0;
  unsigned prediction_bits_[kMaxOwnComponents] = {};
  unsigned entry_bits_ = 0;
};

}  // namespace fastloader
