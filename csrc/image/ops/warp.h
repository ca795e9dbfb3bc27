#pragma once

#include <array>
#include <vector>

#include "image/ops/canvas.h"
#include "image/ops/fill.h"

namespace fastloader {

// Every pixel of the result is fetched from where a formula says: Pillow's Image.transform. The
// numbers are those of Operation::Kind, those of the checks any that are finite and as many as the
// kind takes.
//
// Pillow's arithmetic is repeated operation by operation. What is moved out of its loops here are
// products that do not change within a row, and so have the same bits.

void check_affine(const std::vector<double>& numbers);
void affine(const std::vector<double>& numbers, Canvas& canvas);

void check_perspective(const std::vector<double>& numbers);
void perspective(const std::vector<double>& numbers, Canvas& canvas);

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

/// Image.transform(size, AFFINE, coefficients). These need not even be finite.
void warp_affine(const std::array<double, 6>& coefficients, Resampling resampling, const Fill& fill,
                 const ImageSize& size, Canvas& canvas);

}  // namespace fastloader
