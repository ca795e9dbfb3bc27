#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

// A mix of pictures that are made of the same one: of AugMix, https://arxiv.org/abs/1912.02781. The
// canvas keeps the picture with which the mix begins, and a float for each of its bytes, the sum.
// Each product and each addition rounds once, as in arrays of numpy and in tensors.

/// Keeps the picture. The sum is the picture, times the weight. Throws InvalidArgument within a
/// mix.
void mix_begin(float weight, Canvas& canvas);

/// Adds the picture, times the weight, to the sum; then the kept picture is there again. This and
/// the next two throw InvalidArgument outside a mix, and for a picture of another size.
void mix_add(float weight, Canvas& canvas);

/// The same, but the sum becomes what Image.blend makes of it and the picture: bytes.
void mix_blend(float factor, Canvas& canvas);

/// The sum, clipped and cut off to bytes, is the picture now, or a blend of the kept picture and
/// that, if the factor is not 1. The mix is at its end.
void mix_end(float factor, Canvas& canvas);

}  // namespace fastloader
