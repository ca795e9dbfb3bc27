#pragma once

#include <cstdint>
#include <limits>

#include "image/philox.h"

namespace fastloader {

/// How a number of an operation is drawn:
///
///   x       as `from` says
///   number  after + sign * round(offset + scale * min(max(x, low), high))
///
/// That is enough for the magnitudes of every policy of torchvision and timm, which are linear in a
/// level. fastloader/transforms/_recipe/number.py repeats it in Python, and a test compares the
/// two.
struct Number {
  enum class From : uint8_t {
    kConstant,  ///< a
    kUniform,   ///< in [a, b)
    kWhole,     ///< one of a, a + 1, ..., b
    kNormal,    ///< with mean a and standard deviation b
  };
  enum class Round : uint8_t {
    kNone,
    kTruncate,  ///< as Python's int()
    kNearest,   ///< ties to even, as Python's round()
  };

  From from = From::kConstant;
  double a = 0;
  double b = 0;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double scale = 1;
  double offset = 0;
  Round round = Round::kNone;
  bool either_sign = false;  ///< sign is -1 for half of the pictures
  double after = 0;
};

/// Throws InvalidArgument unless a number can be drawn: finite figures, ranges that are not upside
/// down, no negative deviation, whole numbers of less than 2^53.
void validate(const Number& number);

/// Expects a number that passed validate(). A constant takes no draw, a normal deviate takes two,
/// and a sign takes one, behind the others.
double draw(const Number& number, Draws& draws);

}  // namespace fastloader
