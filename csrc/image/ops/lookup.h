#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

// Each byte becomes another that depends on nothing but its value and channel: ImageOps of Pillow.
// What does not look at the picture first is computed, since that is faster than a table.

/// 255 - x.
void invert(Canvas& canvas);

/// Keeps the highest bits, 0 to 8 of them. (Pillow 13 refuses 0, which made pictures black before.)
void posterize(int bits, Canvas& canvas);

/// Inverts the values from the threshold on, which may lie anywhere and need not be whole.
void solarize(double threshold, Canvas& canvas);

/// timm's solarize_add: adds to values below the threshold, and clips.
void solarize_add(int add, double threshold, Canvas& canvas);

/// Stretches each channel so that its values reach from 0 to 255: ImageOps.autocontrast without a
/// cutoff.
void autocontrast(Canvas& canvas);

/// Spreads each channel's values so that all are about as frequent: ImageOps.equalize.
void equalize(Canvas& canvas);

}  // namespace fastloader
