#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

/// ImageEnhance.Sharpness of Pillow: from the picture smoothed by a kernel of 3x3 (factor 0) to the
/// picture itself (1), and beyond. Pixels of the border stay as they are, and so does a picture
/// that is less than three pixels wide or high.
void sharpness(float factor, Canvas& canvas);

}  // namespace fastloader
