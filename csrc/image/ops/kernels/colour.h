#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// What the operations on colours do to bytes of RGB pixels side by side, on one instruction set.
/// All of them give the same bytes. Pointers have no alignment, and nothing but the pixels is read
/// or written.
struct ColourKernels {
  /// Blends bytes with a picture of which every byte is `other`: Image.blend of Pillow, by any
  /// finite factor.
  void (*blend)(uint8_t other, float factor, uint8_t* bytes, size_t count);
  /// The sum of up to 2^20 pixels in grey: Pillow's conversion from RGB to L.
  uint32_t (*sum_of_greys)(const uint8_t* rgb, size_t pixels);
  /// Blends each pixel with its grey.
  void (*saturate)(float factor, uint8_t* rgb, size_t pixels);
  /// Each pixel becomes its grey, in three equal channels.
  void (*grayscale)(uint8_t* rgb, size_t pixels);
  /// Adds to each pixel's hue, of which 256 are a turn, as conversions of Pillow to HSV and back
  /// would.
  void (*hue)(uint8_t shift, uint8_t* rgb, size_t pixels);
};

extern const ColourKernels kColourScalar;
extern const ColourKernels kColourAvx2;

}  // namespace fastloader
