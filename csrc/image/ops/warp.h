#pragma once

#include <array>
#include <cstdint>

#include "image/ops/canvas.h"
#include "image/ops/fill.h"

namespace fastloader {

// What the families that fetch pixels from elsewhere share.

/// A place in a picture, in pixels from its corner.
struct Point {
  double x;
  double y;
};

/// Numbered as Pillow's.
enum class Resampling { kNearest = 0, kBilinear = 2, kBicubic = 3 };

void check_resampling(const char* operation, double number);
/// Expects a number that passed the check.
Resampling resampling_of(double number);

/// Whether a coordinate lies in one of so many pixels. Pillow compares what it becomes as an int:
/// what has none, and NaN, becomes the least int on x86-64, which is outside, too.
inline bool lies_in(double coordinate, int32_t pixels) {
  return coordinate >= 0.0 && coordinate < pixels;
}

/// Image.transform(size, AFFINE, coefficients). These need not even be finite.
void warp_affine(const std::array<double, 6>& coefficients, Resampling resampling, const Fill& fill,
                 const ImageSize& size, Canvas& canvas);

/// An affine warp whose pixels are the nearest of the picture's, into other(size). The coefficients
/// need not be finite. Pillow has three ways of its own for these, whose sums run from pixel to
/// pixel, each with roundings of its own.
void warp_affine_nearest(const std::array<double, 6>& a, const Fill& fill, const ImageSize& size,
                         Canvas& canvas);

}  // namespace fastloader
