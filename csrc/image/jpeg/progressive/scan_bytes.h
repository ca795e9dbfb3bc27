#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/file.h"
#include "image/jpeg/kernels/entropy.h"

namespace fastloader {

/// The entropy-coded bytes of all scans of a progressive file, without stuffing: whole, since scans
/// are decoded side by side.
class ScanBytes {
 public:
  void fill(const JpegEntropyKernels& kernels, const std::vector<ProgressiveScan>& scans);

  /// Where the intervals between restarts of a scan begin, one behind the other, and the last one
  /// ends. Enough zeros are behind it that an MCU may be decoded before anybody asks whether it has
  /// come to its end.
  const uint8_t* const* intervals(size_t scan) const {
    return intervals_.data() + first_interval_[scan];
  }

  /// Gives memory back if it is more than pictures usually need.
  void close();

  size_t scratch_bytes() const {
    return bytes_.capacity() + intervals_.capacity() * sizeof(intervals_[0]);
  }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<const uint8_t*> intervals_;
  std::vector<size_t> first_interval_;
};

}  // namespace fastloader
