#include "image/recipe/number.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr double kTwoPi = 6.283185307179586;
/// So that nothing that is computed from figures becomes infinite.
constexpr double kMostFigure = 1e100;

void check_figure(double value) {
  // Written so that NaN is refused.
  if (std::abs(value) <= kMostFigure) return;
  throw InvalidArgument("a number with the figure " + std::to_string(value));
}

void check_range(const char* what, double low, double high) {
  if (low <= high) return;
  throw InvalidArgument("a number " + std::string(what) + " " + std::to_string(low) + " to " +
                        std::to_string(high));
}

double draw_before_scale(const Number& number, Draws& draws) {
  switch (number.from) {
    case Number::From::kConstant:
      return number.a;
    case Number::From::kUniform:
      return draws.uniform(number.a, number.b);
    case Number::From::kTable:
      return number.values[static_cast<size_t>(draws.below(number.values.size()))];
    case Number::From::kNormal:
      return number.a + number.b * standard_normal(draws);
  }
  return 0;
}

}  // namespace

void validate(const Number& number) {
  for (const double figure : {number.a, number.b, number.scale, number.offset, number.after}) {
    check_figure(figure);
  }
  for (const double value : number.values) check_figure(value);
  check_range("between", number.low, number.high);
  check_range("not below", number.low, kMostFigure);
  check_range("not above", -kMostFigure, number.high);
  if (number.from == Number::From::kUniform) check_range("from", number.a, number.b);
  if (number.from == Number::From::kNormal) check_range("with a deviation of", 0, number.b);
  const size_t values = number.values.size();
  const bool table = number.from == Number::From::kTable;
  if (table ? values == 0 || values > kMostValues : values != 0) {
    throw InvalidArgument("a number from a table of " + std::to_string(values) + " values; 1 to " +
                          std::to_string(kMostValues) + " are allowed, and none without a table");
  }
}

double standard_normal(Draws& draws) {
  // Box and Muller. 1 - u is never 0, and its logarithm never infinite.
  const double length = std::sqrt(-2 * std::log(1 - draws.uniform()));
  const double angle = kTwoPi * draws.uniform();
  return length * std::cos(angle);
}

double draw(const Number& number, const ImageSize& picture, Draws& draws) {
  double x = draw_before_scale(number, draws);
  x = x < number.low ? number.low : x > number.high ? number.high : x;
  x = number.offset + number.scale * x;
  if (number.unit == Number::Unit::kWidth) x *= static_cast<double>(picture.width);
  if (number.unit == Number::Unit::kHeight) x *= static_cast<double>(picture.height);
  if (number.round == Number::Round::kTruncate) x = std::trunc(x);
  if (number.round == Number::Round::kNearest) x = std::nearbyint(x);
  if (number.round == Number::Round::kSingle) x = static_cast<double>(static_cast<float>(x));
  if (number.either_sign && draws.below(2) == 1) x = -x;
  return number.after + x;
}

}  // namespace fastloader
