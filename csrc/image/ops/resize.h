#pragma once

#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

/// Image.resize of Pillow, without a box and a reducing gap. The numbers are those of
/// Operation::Kind, those of the check any that are finite and as many as the kind takes.
void check_resize(const std::vector<double>& numbers);

ImageSize resized_size(const std::vector<double>& numbers);

/// In the canvas's resize_order(). A picture that has the size already stays as it is.
void resize(const std::vector<double>& numbers, Canvas& canvas);

}  // namespace fastloader
