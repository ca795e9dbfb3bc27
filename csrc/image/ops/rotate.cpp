#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "image/ops/checks.h"
#include "image/ops/copy_pixels.h"
#include "image/ops/families.h"
#include "image/ops/warp.h"

namespace fastloader {
namespace {

/// The numbers with a centre: 8 of them.
constexpr size_t kWithCentre = 8;

using Matrix = std::array<double, 6>;

Point transformed(const Matrix& m, const Point& p) {
  return {m[0] * p.x + m[1] * p.y + m[2], m[3] * p.x + m[4] * p.y + m[5]};
}

/// Python's angle % 360.0, from 0 to 360. (A tiny negative angle becomes 360 itself.)
double within_a_turn(double angle) {
  const double rest = std::fmod(angle, 360.0);
  if (rest == 0) return 0;
  return rest < 0 ? rest + 360.0 : rest;
}

/// Python's round(value, 15) for values from -1 to 1: the nearest decimal of 15 digits, ties to
/// even, and the double that is nearest to it. The number of units of the last digit is an integer
/// below 2^53, and their quotient is one division, correctly rounded.
double rounded_to_15_digits(double value) {
  constexpr double kUnits = 1e15;
  const double magnitude = std::fabs(value);
  const double product = magnitude * kUnits;
  const double error = std::fma(magnitude, kUnits, -product);  // product + error is exact
  double units = std::floor(product);
  const double beyond_half = (product - units) - 0.5;  // exact, being a multiple of product's ulp
  if (beyond_half > -error || (beyond_half == -error && std::fmod(units, 2) == 1)) units += 1;
  return std::copysign(units / kUnits, value);
}

/// The rotation's part of the matrix from pixels of the result to those of the picture.
Matrix turned_back(double angle) {
  // Called through pointers that the compiler cannot see through: it would make one call of a pair,
  // which need not have the last bit of Python's two.
  double (*volatile cosine)(double) = std::cos;
  double (*volatile sine)(double) = std::sin;
  constexpr double kPi = 3.14159265358979323846;
  const double radians = -(angle * (kPi / 180.0));
  const double c = rounded_to_15_digits(cosine(radians));
  const double s = rounded_to_15_digits(sine(radians));
  return {c, s, 0.0, -s, c, 0.0};
}

/// math.ceil(greatest) - math.floor(least), or a number that no picture's edge can have.
int64_t span(double least, double greatest) {
  // Written so that NaN and infinities end here. Whole numbers up to this limit have exact
  // differences.
  constexpr double kLimit = 4503599627370496.0;
  if (!(least > -kLimit && greatest < kLimit)) return -1;
  return static_cast<int64_t>(std::ceil(greatest) - std::floor(least));
}

ImageSize expanded(const Matrix& matrix, double width, double height) {
  const Point corners[] = {{0, 0}, {width, 0}, {width, height}, {0, height}};
  Point least = transformed(matrix, corners[0]);
  Point greatest = least;
  for (const Point& corner : corners) {
    const Point p = transformed(matrix, corner);
    if (std::isnan(p.x) || std::isnan(p.y)) return checked_size("rotate", -1, -1);
    least = {std::min(least.x, p.x), std::min(least.y, p.y)};
    greatest = {std::max(greatest.x, p.x), std::max(greatest.y, p.y)};
  }
  return checked_size("rotate", span(least.x, greatest.x), span(least.y, greatest.y));
}

void half_turn(Canvas& canvas) {
  const ImageSize size = canvas.size();
  uint8_t* to = canvas.other(size);
  const uint8_t* last = canvas.pixels() + canvas.bytes() - Canvas::kRgb;
  for (size_t y = 0; y < size.height; ++y) {
    canvas.throw_if_stopped();
    copy_backwards_and_more(last, size.width, to);
    last -= canvas.row_bytes();
    to += canvas.row_bytes();
  }
  canvas.turn();
}

void quarter_turn(bool counterclockwise, Canvas& canvas) {
  const ImageSize from = canvas.size();
  const ImageSize made{from.width, from.height};
  const auto row_bytes = static_cast<ptrdiff_t>(canvas.row_bytes());
  const ptrdiff_t next_row = counterclockwise ? row_bytes : -row_bytes;
  uint8_t* const out = canvas.other(made);
  // Strips of a few columns of the result, from left to right: the lines of the cache that a column
  // of the picture runs through are there still when the next column comes.
  constexpr size_t kStrip = 32;
  for (size_t left = 0; left < made.width; left += kStrip) {
    canvas.throw_if_stopped();
    // What comes behind the last pixel may be the next row, which is there already.
    const size_t all_but_one = std::min(kStrip, made.width - left) - 1;
    const size_t from_y = counterclockwise ? left : from.height - 1 - left;
    const uint8_t* const row = canvas.pixels() + from_y * canvas.row_bytes();
    for (size_t y = 0; y < made.height; ++y) {
      const uint8_t* first = row + (counterclockwise ? from.width - 1 - y : y) * Canvas::kRgb;
      uint8_t* to = out + (y * made.width + left) * Canvas::kRgb;
      copy_pixels_and_more(first, next_row, all_but_one, to);
      copy_pixel(first + static_cast<ptrdiff_t>(all_but_one) * next_row,
                 to + all_but_one * Canvas::kRgb);
    }
  }
  canvas.turn();
}

/// What a rotation is for a picture of one size.
struct Rotation {
  ImageSize size;       // of the result
  int quarters = 0;     // counterclockwise, if that is all
  bool warped = false;  // otherwise, by the matrix
  Matrix matrix{};
};

/// Sets the rotation if it is one by quarters, which move pixels as they are.
bool set_quarters(double angle, bool expand, const ImageSize& size, Rotation& rotation) {
  const bool upright = angle == 90 || angle == 270;
  if (!upright && angle != 0 && angle != 180) return false;
  if (upright && !expand && size.width != size.height) return false;
  rotation.quarters = static_cast<int>(angle) / 90;
  rotation.size = upright ? ImageSize{size.width, size.height} : size;
  return true;
}

Rotation rotation_of(const std::vector<double>& numbers, const ImageSize& size) {
  const double angle = within_a_turn(numbers[0]);
  const bool expand = numbers[2] != 0;
  const bool centred = numbers.size() != kWithCentre;
  Rotation rotation;
  if (centred && set_quarters(angle, expand, size, rotation)) return rotation;

  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  const Point centre = centred ? Point{width / 2, height / 2} : Point{numbers[3], numbers[4]};
  Matrix matrix = turned_back(angle);
  const Point moved = transformed(matrix, {-centre.x, -centre.y});
  matrix[2] = moved.x + centre.x;
  matrix[5] = moved.y + centre.y;
  rotation.size = size;
  if (expand) {
    const ImageSize made = expanded(matrix, width, height);
    const Point corner = transformed(matrix, {-(static_cast<double>(made.width) - width) / 2.0,
                                              -(static_cast<double>(made.height) - height) / 2.0});
    matrix[2] = corner.x;
    matrix[5] = corner.y;
    rotation.size = made;
  }
  rotation.warped = true;
  rotation.matrix = matrix;
  return rotation;
}

}  // namespace

void check_rotate(const std::vector<double>& numbers) {
  if (numbers.size() != kWithCentre && numbers.size() != kWithCentre - 2) {
    throw InvalidArgument("rotate takes 6 numbers, or 8 with a centre, not 7");
  }
  check_resampling("rotate", numbers[1]);
  check_whole("rotate", "expand", numbers[2], 0, 1);
  check_fill("rotate", numbers, numbers.size() - 3);
}

ImageSize rotated_size(const std::vector<double>& numbers, const ImageSize& size) {
  return rotation_of(numbers, size).size;
}

void rotate(const std::vector<double>& numbers, Canvas& canvas) {
  const Rotation rotation = rotation_of(numbers, canvas.size());
  if (rotation.warped) {
    warp_affine(rotation.matrix, resampling_of(numbers[1]), fill_of(numbers, numbers.size() - 3),
                rotation.size, canvas);
  } else if (rotation.quarters == 2) {
    half_turn(canvas);
  } else if (rotation.quarters != 0) {
    quarter_turn(rotation.quarters == 1, canvas);
  }
}

}  // namespace fastloader
