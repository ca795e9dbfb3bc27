#include "image/recipe/number.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr double kTwoPi = 6.283185307179586;
/// Beyond it a double skips whole numbers.
constexpr double kMostWhole = 9007199254740992.0;

void check_finite(const char* what, double value) {
  if (!std::isfinite(value)) {
    throw InvalidArgument("a number with " + std::string(what) + " " + std::to_string(value));
  }
}

void check_range(const char* what, double low, double high) {
  if (!(low <= high)) {
    throw InvalidArgument("a number " + std::string(what) + " " + std::to_string(low) + " to " +
                          std::to_string(high));
  }
}

bool is_whole(double value) { return std::trunc(value) == value && std::abs(value) < kMostWhole; }

double draw_before_scale(const Number& number, Draws& draws) {
  switch (number.from) {
    case Number::From::kConstant:
      return number.a;
    case Number::From::kUniform:
      return draws.uniform(number.a, number.b);
    case Number::From::kWhole: {
      const auto count = static_cast<uint64_t>(number.b - number.a) + 1;
      return number.a + static_cast<double>(draws.below(count));
    }
    case Number::From::kNormal: {
      // Box and Muller. 1 - u is never 0, and its logarithm never infinite.
      const double length = std::sqrt(-2 * std::log(1 - draws.uniform()));
      const double angle = kTwoPi * draws.uniform();
      return number.a + number.b * (length * std::cos(angle));
    }
  }
  return 0;
}

}  // namespace

void validate(const Number& number) {
  check_finite("the scale", number.scale);
  check_finite("the offset", number.offset);
  check_finite("the constant after its sign", number.after);
  check_finite("the figure", number.a);
  check_finite("the figure", number.b);
  check_range("between", number.low, number.high);
  if (number.from == Number::From::kUniform) check_range("from", number.a, number.b);
  if (number.from == Number::From::kNormal) check_range("with a deviation of", 0, number.b);
  if (number.from == Number::From::kWhole) {
    check_range("from", number.a, number.b);
    if (!is_whole(number.a) || !is_whole(number.b) || number.b - number.a >= 0x1p32) {
      throw InvalidArgument("a whole number from " + std::to_string(number.a) + " to " +
                            std::to_string(number.b) + ": 2^32 whole numbers are the most");
    }
  }
}

double draw(const Number& number, Draws& draws) {
  double x = draw_before_scale(number, draws);
  x = x < number.low ? number.low : x > number.high ? number.high : x;
  x = number.offset + number.scale * x;
  if (number.round == Number::Round::kTruncate) x = std::trunc(x);
  if (number.round == Number::Round::kNearest) x = std::nearbyint(x);
  if (number.either_sign && draws.below(2) == 1) x = -x;
  return number.after + x;
}

}  // namespace fastloader
