#include "image/jpeg/progressive/scan_bytes.h"

#include <cstring>

#include "image/jpeg/markers.h"

namespace fastloader {
namespace {

constexpr size_t kKeptBytes = size_t{4} << 20;
/// Behind a scan, for a block of a band and what a reader is ahead of what it has taken. An MCU of
/// first coefficients is shorter.
constexpr size_t kZeros = kMostBlockBytes + 16;
/// What unstuff() may write behind its end.
constexpr size_t kUnstuffSlack = 64;

}  // namespace

void ScanBytes::fill(const JpegEntropyKernels& kernels, const std::vector<ProgressiveScan>& scans) {
  size_t needed = kUnstuffSlack;
  for (const ProgressiveScan& scan : scans) {
    needed += static_cast<size_t>(scan.end - scan.begin) + kZeros;
  }
  if (bytes_.size() < needed) bytes_.resize(needed);
  intervals_.clear();
  first_interval_.clear();
  uint8_t* out = bytes_.data();
  for (const ProgressiveScan& scan : scans) {
    first_interval_.push_back(intervals_.size());
    const uint8_t* in = scan.begin;
    for (uint64_t interval = 0; interval < scan.intervals(); ++interval) {
      if (interval > 0) in = jpeg_marker::behind_fill(in, scan.end) + 1;
      intervals_.push_back(out);
      // One byte of room more than there are: else it would end for want of room.
      const Unstuffed unstuffed = kernels.unstuff(in, scan.end, out, out + (scan.end - in) + 1);
      in = unstuffed.in;
      out = unstuffed.out;
    }
    intervals_.push_back(out);
    std::memset(out, 0, kZeros);
    out += kZeros;
  }
}

void ScanBytes::close() {
  if (scratch_bytes() <= kKeptBytes) return;
  bytes_ = std::vector<uint8_t>();
  intervals_ = std::vector<const uint8_t*>();
}

}  // namespace fastloader
