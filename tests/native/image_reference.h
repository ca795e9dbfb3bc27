#pragma once

// What a finished picture must be, composed from the oracles: libjpeg's plain whole decode, the
// resize by its definition, and window, flips and layout pixel by pixel. The geometry is given.

#include <cstdint>
#include <vector>

#include "image/image_transform.h"
#include "image/normalize.h"
#include "jpeg_plain.h"
#include "jpeg_samples.h"

// Both headers have a Random; this one keeps that of the JPEGs.
#define Random ResizeRandom
#include "resize_reference.h"
#undef Random

namespace fastloader::testing {

inline Image cropped(const uint8_t* rgb, size_t width, const CropBox& box) {
  Image out(box.width, box.height, 3);
  for (size_t y = 0; y < box.height; ++y) {
    for (size_t x = 0; x < box.width; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        out.at(x, y, c) = rgb[((box.top + y) * width + box.left + x) * 3 + c];
      }
    }
  }
  return out;
}

/// The window of a resized picture: zeros where it reaches beyond.
inline Image windowed(const Image& in, const CenterCrop& window) {
  Image out(window.pad_left + window.box.width + window.pad_right,
            window.pad_top + window.box.height + window.pad_bottom, 3);
  for (size_t y = 0; y < window.box.height; ++y) {
    for (size_t x = 0; x < window.box.width; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        out.at(window.pad_left + x, window.pad_top + y, c) =
            in.at(window.box.left + x, window.box.top + y, c);
      }
    }
  }
  return out;
}

/// NHWC.
inline Image reference_picture(const ImageTransform& transform, const SampleGeometry& geometry,
                               const uint8_t* rgb, size_t width) {
  ResizeSpec spec = make_spec(geometry.box.width, geometry.box.height, geometry.scaled.width,
                              geometry.scaled.height, 3, transform.filter);
  const Image resized = reference_resize(spec, cropped(rgb, width, geometry.box));
  const Image seen = windowed(resized, geometry.window);
  Image out = seen;
  for (size_t y = 0; y < out.height; ++y) {
    for (size_t x = 0; x < out.width; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        out.at(x, y, c) = seen.at(geometry.horizontal_flip ? out.width - 1 - x : x,
                                  geometry.vertical_flip ? out.height - 1 - y : y, c);
      }
    }
  }
  return out;
}

inline std::vector<uint8_t> planar(const Image& in) {
  std::vector<uint8_t> out;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t y = 0; y < in.height; ++y) {
      for (size_t x = 0; x < in.width; ++x) out.push_back(in.at(x, y, c));
    }
  }
  return out;
}

}  // namespace fastloader::testing
