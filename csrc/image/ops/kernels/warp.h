#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// A picture that a warp fetches from: pixels of 4 bytes, the last of which is of no account,
/// surrounded by two copies of its outermost pixels. Those are what a filter takes that reaches
/// beyond the picture.
struct WarpSource {
  static constexpr size_t kPixel = 4;
  static constexpr size_t kBorder = 2;

  const uint8_t* first;  // pixel of the picture
  size_t stride;         // from row to row, in bytes
  double width;          // of the picture, in pixels
  double height;
  uint8_t fill[3];  // for what comes from outside

  /// Pixels from -2 to the last but 2 beyond the edges.
  const uint8_t* at(int32_t x, int32_t y) const {
    return first + y * static_cast<ptrdiff_t>(stride) + x * static_cast<ptrdiff_t>(kPixel);
  }
};

/// Writes `count` RGB pixels that come from the places (x, y), in pixels from the picture's corner.
/// A place that is NaN is not outside, as Pillow sees it: what comes from there is black.
using WarpKernel = void (*)(const WarpSource& source, const double* x, const double* y,
                            size_t count, uint8_t* to);

/// Image.transform of Pillow on one instruction set. All of them give the same bytes: the
/// arithmetic is Pillow's, in doubles, operation by operation.
struct WarpKernels {
  /// Makes a WarpSource's pixels of RGB pixels side by side.
  void (*widen)(const uint8_t* rgb, size_t pixels, uint8_t* to);
  WarpKernel bilinear;
  WarpKernel bicubic;
};

extern const WarpKernels kWarpScalar;
extern const WarpKernels kWarpAvx2;

}  // namespace fastloader
