#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

/// Largest radius that pillow_blur() takes.
constexpr double kMaxPillowBlur = kMaxImageEdge;

/// ImageFilter.GaussianBlur of Pillow: along each axis three box blurs, whose boxes end in a part
/// of a pixel. Each of them rounds to bytes. A radius of 0 leaves that axis alone; the sign of a
/// radius is of no account, as in Pillow.
///
/// Takes as long for a large radius as for a small one. It needs 96 bytes of the canvas's scratch
/// for each pixel of the longest edge along which it blurs.
void pillow_blur(double radius_x, double radius_y, Canvas& canvas);

}  // namespace fastloader
