#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

// ImageEnhance of Pillow: a blend of a picture and one that lacks something, by any factor. 0 gives
// the latter, 1 leaves the picture as it is, and more has more of what the latter lacks.

/// The other picture is black.
void brightness(float factor, Canvas& canvas);

/// The other picture is of one grey everywhere, the mean of this one in grey.
void contrast(float factor, Canvas& canvas);

/// The other picture is this one in grey.
void saturation(float factor, Canvas& canvas);

/// Grey in three equal channels: Pillow's conversion to L, and back.
void grayscale(Canvas& canvas);

}  // namespace fastloader
