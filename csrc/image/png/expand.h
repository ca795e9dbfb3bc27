#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "image/png/file.h"

namespace fastloader {

/// Makes RGB of a PNG's pixels, as Pillow's `convert("RGB")` does: alpha is dropped, 16 bits lose
/// the lower eight, but grey of 16 bits is cut off at 255. Or makes
/// indices, as PictureOptions has them.
class PngExpander {
 public:
  void begin(const PngFile& file, bool indices = false);
  /// Pixels `first` to `first + count` of a row without its filter, to 3 bytes each.
  void expand(const uint8_t* row, size_t first, size_t count, uint8_t* out) const;

 private:
  void look_up(const uint8_t* row, size_t first, size_t count, uint8_t* out) const;

  PngHeader header_;
  bool indices_ = false;
  std::array<std::array<uint8_t, 3>, 256> table_;  // of a sample, or of an index
};

}  // namespace fastloader
