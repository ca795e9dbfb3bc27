#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

/// torchvision's adjust_hue of a PIL picture: Pillow's conversion to HSV in bytes, a shift of the
/// hue, and Pillow's conversion back. It is no identity for a factor of 0, as bytes hold less of
/// HSV than of RGB. Expects a factor from -0.5 to 0.5, which are turns of the colour circle.
void hue(double factor, Canvas& canvas);

}  // namespace fastloader
