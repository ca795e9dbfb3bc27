#pragma once

#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

// Pixels move as they are: torchvision's pad on a PIL picture, crop and the flips of Pillow. The
// numbers are those of Operation::Kind, those of the checks any that are finite and as many as the
// kind takes.

/// Throws InvalidArgument for numbers that pad() cannot take whatever the picture.
void check_pad(const std::vector<double>& numbers);
/// The size that pad() makes of a picture's. Throws InvalidArgument where the result, or what
/// negative padding leaves of the picture to be continued, would have no pixels or too many.
ImageSize padded_size(const std::vector<double>& numbers, const ImageSize& size);
void pad(const std::vector<double>& numbers, Canvas& canvas);

void check_crop(const std::vector<double>& numbers);
ImageSize cropped_size(const std::vector<double>& numbers);
void crop(const std::vector<double>& numbers, Canvas& canvas);

/// Left becomes right.
void hflip(Canvas& canvas);
/// Top becomes bottom.
void vflip(Canvas& canvas);

}  // namespace fastloader
