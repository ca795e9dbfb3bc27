#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "image/ops/canvas.h"

namespace fastloader {

/// Calls each(first byte, pixels) for all pixels of the picture, some at a time. Throws Stopped
/// between two of these once the canvas's work is given up.
template <class Each>
void in_pieces(Canvas& canvas, const Each& each) {
  constexpr size_t kPiece = size_t{1} << 16;  // a fraction of a millisecond
  uint8_t* rgb = canvas.pixels();
  size_t left = canvas.bytes() / Canvas::kRgb;
  while (left != 0) {
    canvas.throw_if_stopped();
    const size_t pixels = std::min(left, kPiece);
    each(rgb, pixels);
    rgb += pixels * Canvas::kRgb;
    left -= pixels;
  }
}

}  // namespace fastloader
