#pragma once

// What a finished picture must be, composed from the oracles: libjpeg's plain whole decode, the
// resize by its definition, and window, flips and layout pixel by pixel. The geometry is given.

#include <array>
#include <cstdint>
#include <vector>

#include "image/image_transform.h"
#include "image/normalize/normalize.h"
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

/// The window of a resized picture: `fill` where it reaches beyond.
inline Image windowed(const Image& in, const CenterCrop& window,
                      const std::array<uint8_t, 3>& fill) {
  Image out(window.pad_left + window.box.width + window.pad_right,
            window.pad_top + window.box.height + window.pad_bottom, 3);
  for (size_t i = 0; i < out.bytes.size(); ++i) out.bytes[i] = fill[i % 3];
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

/// NHWC, from pixels at 1/`denominator` of the size that the geometry is of: the pixels that the
/// box touches are cut out, and the box, in fractions of pixels, is stretched.
inline Image reference_picture(const ImageTransform& transform, const SampleGeometry& geometry,
                               const uint8_t* rgb, size_t width, size_t denominator = 1) {
  const CropBox& box = geometry.box;
  const auto first = [&](size_t edge) { return edge / denominator; };
  const auto end = [&](size_t edge) { return (edge + denominator - 1) / denominator; };
  CropBox touched{first(box.left), first(box.top), 0, 0};
  touched.width = end(box.left + box.width) - touched.left;
  touched.height = end(box.top + box.height) - touched.top;
  ResizeSpec spec = make_spec(touched.width, touched.height, geometry.scaled.width,
                              geometry.scaled.height, 3, geometry.filter);
  const auto by = static_cast<float>(denominator);
  const auto left = static_cast<float>(box.left % denominator) / by;
  const auto top = static_cast<float>(box.top % denominator) / by;
  spec.box = ResizeBox{left, top, left + static_cast<float>(box.width) / by,
                       top + static_cast<float>(box.height) / by};
  const Image resized = reference_resize(spec, cropped(rgb, width, touched));
  const Image seen = windowed(resized, geometry.window, transform.fill);
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
