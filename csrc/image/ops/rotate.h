#pragma once

#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

/// Image.rotate of Pillow, counterclockwise around the centre. The numbers are those of
/// Operation::Kind, those of the check any that are finite, at least 6 and at most 8 of them.
void check_rotate(const std::vector<double>& numbers);

/// The size of the rotated picture. Throws InvalidArgument where the expanded picture would have no
/// pixels or too many.
ImageSize rotated_size(const std::vector<double>& numbers, const ImageSize& size);
void rotate(const std::vector<double>& numbers, Canvas& canvas);

}  // namespace fastloader
