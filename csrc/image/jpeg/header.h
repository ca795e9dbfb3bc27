#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

constexpr int kMaxJpegComponents = 4;

/// Sampling factors of one component: 1 to 4 each. 4:2:0 is {2, 2}, {1, 1}, {1, 1}.
struct JpegSampling {
  uint8_t horizontal = 1;
  uint8_t vertical = 1;
};

enum class JpegColor : uint8_t { kGrey, kYcc, kRgb, kCmyk, kYcck };

struct JpegHeader {
  uint32_t width = 0;  ///< of the file; the orientation in EXIF is not applied
  uint32_t height = 0;
  uint32_t scaled_width = 0;  ///< of the pixels that come out; see reduce()
  uint32_t scaled_height = 0;
  int components = 0;
  JpegColor color = JpegColor::kGrey;
  JpegSampling sampling[kMaxJpegComponents] = {};
  int precision = 0;  ///< bits per sample
  bool progressive = false;
  int adobe_transform = -1;  ///< -1: no Adobe marker
  /// An end marker stands somewhere after the first scan header. Without one the file was cut off
  /// (or never finished), and whether that is an error depends on where its bytes end.
  bool has_end_marker = false;
};

}  // namespace fastloader
