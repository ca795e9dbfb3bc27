#pragma once

#include <array>
#include <cstdint>

#include "image/ops/canvas.h"
#include "image/ops/fill.h"

namespace fastloader {

/// C's conversion of a double to int leaves open what becomes of numbers that have no int. Here
/// they and NaN become the least int, as on x86-64, where it means "outside" to what Pillow does
/// next.
inline int32_t to_int(double value) {
  return value > -2147483649.0 && value < 2147483648.0 ? static_cast<int32_t>(value) : INT32_MIN;
}

/// The pixel that a coordinate lies in; negative where that is none.
inline int32_t pixel_of(double coordinate) { return coordinate < 0.0 ? -1 : to_int(coordinate); }

/// An affine warp whose pixels are the nearest of the picture's, into other(size). The coefficients
/// need not be finite. Pillow has three ways of its own for these, whose sums run from pixel to
/// pixel, each with roundings of its own.
void warp_affine_nearest(const std::array<double, 6>& a, const Fill& fill, const ImageSize& size,
                         Canvas& canvas);

}  // namespace fastloader
