#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "image/crop.h"
#include "image/philox.h"

namespace fastloader {

/// How a number of an operation is drawn:
///
///   x       as `from` says
///   number  after + sign * round(unit * (offset + scale * min(max(x, low), high)))
///
/// That is enough for the magnitudes of every policy of torchvision and timm, which are linear in a
/// level or come from a table. fastloader/transforms/_recipe/recipe.py repeats it in Python, and a
/// test compares the two.
struct Number {
  enum class From : uint8_t {
    kConstant,  ///< a
    kUniform,   ///< in [a, b)
    kTable,     ///< one of `values`
    kNormal,    ///< with mean a and standard deviation b
  };
  enum class Unit : uint8_t {
    kOne,
    kWidth,   ///< of the picture, in pixels, when the step's turn comes
    kHeight,  ///< the same
  };
  enum class Round : uint8_t {
    kNone,
    kTruncate,  ///< as Python's int()
    kNearest,   ///< ties to even, as Python's round()
    kSingle,    ///< to 32 bits, in which torch draws
  };

  From from = From::kConstant;
  double a = 0;
  double b = 0;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double scale = 1;
  double offset = 0;
  Unit unit = Unit::kOne;
  Round round = Round::kNone;
  bool either_sign = false;  ///< sign is -1 for half of the pictures
  double after = 0;
  std::vector<double> values;
};

constexpr size_t kMostValues = 4096;

/// Throws InvalidArgument unless a number can be drawn and is finite: figures of at most 1e100,
/// ranges that are not upside down and not beyond that, no negative deviation, and a table exactly
/// where one is asked for.
void validate(const Number& number);

/// With mean 0 and standard deviation 1; takes two draws.
double standard_normal(Draws& draws);

/// Expects a number that passed validate(). A constant takes no draw, a normal deviate takes two,
/// and a sign takes one, behind the others.
double draw(const Number& number, const ImageSize& picture, Draws& draws);

}  // namespace fastloader
