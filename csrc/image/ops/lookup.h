#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

// Each byte becomes another that depends on nothing but its value and channel: ImageOps of Pillow.

/// 255 - x.
void invert(Canvas& canvas);

}  // namespace fastloader
