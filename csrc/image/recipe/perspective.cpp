#include "image/recipe/perspective.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr size_t kCount = 8;
using Row = std::array<double, kCount + 1>;  // and the right side

}  // namespace

std::array<double, 8> perspective_coefficients(const Corners& starts, const Corners& ends) {
  std::array<Row, kCount> rows{};
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto [x, y] = ends[i];
    const auto [u, v] = starts[i];
    rows[2 * i] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    rows[2 * i + 1] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
  }
  for (size_t column = 0; column < kCount; ++column) {
    size_t best = column;
    for (size_t row = column + 1; row < kCount; ++row) {
      if (std::fabs(rows[row][column]) > std::fabs(rows[best][column])) best = row;
    }
    std::swap(rows[column], rows[best]);
    if (rows[column][column] == 0) {
      throw InvalidArgument("a perspective whose corners fall together");
    }
    for (size_t row = column + 1; row < kCount; ++row) {
      const double factor = rows[row][column] / rows[column][column];
      for (size_t i = column; i <= kCount; ++i) rows[row][i] -= factor * rows[column][i];
    }
  }
  std::array<double, kCount> found{};
  for (size_t row = kCount; row-- > 0;) {
    double rest = rows[row][kCount];
    for (size_t i = row + 1; i < kCount; ++i) rest -= rows[row][i] * found[i];
    found[row] = rest / rows[row][row];
  }
  for (double& coefficient : found) coefficient = static_cast<float>(coefficient);
  return found;
}

}  // namespace fastloader
