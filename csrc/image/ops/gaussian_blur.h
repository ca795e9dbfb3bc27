#pragma once

#include "image/ops/canvas.h"

namespace fastloader {

/// Largest edge of a kernel that gaussian_blur() takes, which bounds the time that it takes.
constexpr size_t kMaxGaussianKernel = 1023;

/// torchvision's gaussian_blur on a PIL picture: a sampled Gaussian of so many pixels, an odd
/// number, over a picture that is mirrored at its edges. torchvision sums in float in an order that
/// is its library's affair, so a value that lies next to a half may differ by 1 from it.
///
/// Throws InvalidArgument where require_mirror() does.
void gaussian_blur(size_t kernel_x, size_t kernel_y, double sigma_x, double sigma_y,
                   Canvas& canvas);

/// Throws InvalidArgument for a picture that is too small to be mirrored as far as these kernels
/// reach.
void require_mirror(size_t kernel_x, size_t kernel_y, const ImageSize& size);

}  // namespace fastloader
