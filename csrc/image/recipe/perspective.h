#pragma once

#include <array>

namespace fastloader {

struct Corner {
  double x = 0;
  double y = 0;
};
using Corners = std::array<Corner, 4>;

/// What Image.transform(PERSPECTIVE) takes to move the corners `starts` of a picture to `ends`,
/// rounded to float. Throws InvalidArgument for corners that fall together.
///
/// torchvision solves the same equations by QR, whose last bits may make another float of it in one
/// case of some thousands. sized.py has the same operations in the same order as this.
std::array<double, 8> perspective_coefficients(const Corners& starts, const Corners& ends);

}  // namespace fastloader
