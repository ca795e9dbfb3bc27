#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/kernels/entropy.h"

namespace fastloader {

/// The bytes of a scan up to its next marker, without stuffing: a piece at a time, so that memory
/// does not grow with the file, and what lies below a crop is never touched.
class EntropyWindow {
 public:
  /// At the first byte of a scan, behind a restart marker, or where a seek index says that an MCU
  /// begins. Sets the run's reader.
  void begin(const JpegEntropyKernels& kernels, const uint8_t* at, const uint8_t* file_end,
             McuRun& run);

  /// To be called when the reader is behind the run's low-water mark. Returns false if there is
  /// nothing more: the reader is past the last byte then.
  bool replenish(const JpegEntropyKernels& kernels, McuRun& run);

  /// Whether all bytes before the marker are here.
  bool ended() const { return ended_; }

  /// How many bits are left before the marker, once ended() is true.
  int64_t bits_left(const BitReader& reader) const { return reader.left(end_); }

  /// How many bits the reader has taken since begin().
  uint64_t bits_taken(const BitReader& reader) const {
    return before_ * 8 + static_cast<uint64_t>(-reader.left(bytes_));
  }

  /// Whether the reader has taken bits that are not there.
  bool overdrawn(const BitReader& reader) const { return ended_ && bits_left(reader) < 0; }

  /// The first byte of the file that has not been taken. Once ended() is true, the marker's, or the
  /// end of the file.
  const uint8_t* at() const { return in_; }

 private:
  void fill(const JpegEntropyKernels& kernels, uint8_t* from, McuRun& run);

  static constexpr size_t kBytes = size_t{16} << 10;
  /// What may be written behind the end: by unstuff(), and zeros for a whole MCU after the last
  /// byte, since an MCU looks at its end only.
  static constexpr size_t kSlack = kMostMcuBytes + 128;

  uint8_t bytes_[kBytes + kSlack];
  uint8_t* end_ = nullptr;
  const uint8_t* in_ = nullptr;
  const uint8_t* file_end_ = nullptr;
  uint64_t before_ = 0;  // bytes that the window has had since begin() and has no more
  bool ended_ = false;
};

}  // namespace fastloader
