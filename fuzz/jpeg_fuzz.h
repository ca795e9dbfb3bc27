#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fastloader::fuzz {

/// Who decoded the inputs.
struct JpegTally {
  uint64_t inputs = 0;
  uint64_t own = 0;      ///< of which our own decoder has made rows
  uint64_t decoded = 0;  ///< of which anybody has made rows
  uint64_t handed = 0;   ///< to libjpeg, at once or after some rows, for one region at least
  std::map<std::string, uint64_t> reasons;  ///< of that; an input may have several

  void print(const char* name) const;
};

/// Any bytes, any region of them, any options: the decoder gives exactly what libjpeg's whole
/// decode gives, cropped, or fails where that fails, and so on every instruction set. Any
/// difference aborts.
void fuzz_jpeg(const uint8_t* data, size_t size, JpegTally& tally);

}  // namespace fastloader::fuzz
