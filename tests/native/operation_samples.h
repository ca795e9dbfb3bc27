#pragma once

// Random operations of every kind, with numbers that validate() takes.

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/ops/operation.h"
#include "resize_reference.h"

namespace fastloader::testing {

constexpr size_t kOperationKinds = static_cast<size_t>(Operation::Kind::kCount);

/// No picture of these tests is larger, so that a sanitizer does not take long.
constexpr size_t kMostEdge = 70;

/// One pixel, one row, one column, less and more than what a loop takes at a time.
inline size_t random_edge(Random& random) {
  switch (random.below(4)) {
    case 0:
      return 1;
    case 1:
      return random.between(1, 6);
    case 2:
      return random.between(15, 18);
    default:
      return random.between(1, kMostEdge);
  }
}

class OperationSamples {
 public:
  explicit OperationSamples(Random& random) : random_(random) {}

  /// Of a kind, for a picture of this size. Most of them can be applied to it.
  Operation make(Operation::Kind kind, const ImageSize& size) {
    width_ = static_cast<double>(size.width);
    height_ = static_cast<double>(size.height);
    return {kind, numbers(kind)};
  }

  /// Of any kind that works without others, which those of a mix don't.
  Operation make(const ImageSize& size) {
    for (;;) {
      const auto kind = static_cast<Operation::Kind>(random_.below(kOperationKinds));
      if (effect_of(kind) != Operation::Effect::kMix) return make(kind, size);
    }
  }

  /// A whole mix of pictures of this size.
  std::vector<Operation> make_mix(const ImageSize& size) {
    using Kind = Operation::Kind;
    std::vector<Operation> made{make(Kind::kMixBegin, size)};
    for (size_t chains = random_.below(4); chains > 0; --chains) {
      for (size_t left = random_.below(3); left > 0; --left) {
        made.push_back(make(random_.one_in(2) ? Kind::kSolarize : Kind::kHflip, size));
      }
      made.push_back(make(random_.one_in(2) ? Kind::kMixAdd : Kind::kMixBlend, size));
    }
    made.push_back(make(Kind::kMixEnd, size));
    return made;
  }

 private:
  using Numbers = std::vector<double>;

  double uniform(double least, double most) {
    return least + (most - least) * static_cast<double>(random_.below(1 << 23)) / (1 << 23);
  }

  double whole(double least, double most) {
    return least + static_cast<double>(random_.below(static_cast<size_t>(most - least) + 1));
  }

  double factor() {
    if (random_.one_in(3)) return whole(0, 2);
    return random_.one_in(2) ? uniform(0, 1) : uniform(-1, 4);
  }

  double radius() { return random_.one_in(4) ? 0 : uniform(0, random_.one_in(4) ? 90 : 3); }

  double resampling() { return random_.one_in(3) ? 0 : whole(2, 3); }

  double edge() { return static_cast<double>(random_edge(random_)); }

  Numbers with_fill(Numbers numbers) {
    const bool grey = random_.one_in(2);
    const double colour = whole(0, 255);
    for (int i = 0; i < 3; ++i) numbers.push_back(grey ? colour : whole(0, 255));
    return numbers;
  }

  Numbers affine() {
    if (random_.one_in(3)) return {uniform(-2, 2), 0, uniform(-9, 9), 0, uniform(-2, 2), 3};
    if (random_.one_in(3)) return {1, uniform(-1, 1), 0, 0, 1, whole(-9, 9)};
    return {uniform(-2, 2), uniform(-2, 2), uniform(-width_, width_),
            uniform(-2, 2), uniform(-2, 2), uniform(-height_, height_)};
  }

  Numbers rotate() {
    const double degrees = random_.one_in(2) ? whole(-8, 8) * 90 : uniform(-400, 400);
    Numbers numbers = {degrees, resampling(), whole(0, 1)};
    if (random_.one_in(2)) {
      numbers.push_back(uniform(-5, width_));
      numbers.push_back(uniform(-5, height_));
    }
    return with_fill(numbers);
  }

  Numbers pad() {
    Numbers numbers;
    for (int i = 0; i < 4; ++i) numbers.push_back(random_.one_in(3) ? 0 : whole(-3, 9));
    numbers.push_back(whole(0, 3));
    return with_fill(numbers);
  }

  Numbers numbers(Operation::Kind kind) {
    using Kind = Operation::Kind;
    switch (kind) {
      case Kind::kPosterize:
        return {whole(0, 8)};
      case Kind::kSolarize:
        return {uniform(-9, 270)};
      case Kind::kSolarizeAdd:
        return random_.one_in(2) ? Numbers{whole(-300, 300)} : Numbers{whole(-99, 99), factor()};
      case Kind::kPillowBlur:
        return {radius(), radius()};
      case Kind::kGaussianBlur:
        return {2 * whole(0, 5) + 1, 2 * whole(0, 5) + 1, uniform(0.1, 3), uniform(0.1, 3)};
      case Kind::kAffine: {
        Numbers numbers = affine();
        numbers.push_back(resampling());
        return with_fill(numbers);
      }
      case Kind::kPerspective: {
        Numbers numbers = affine();
        numbers.push_back(uniform(-0.02, 0.02));
        numbers.push_back(uniform(-0.02, 0.02));
        numbers.push_back(resampling());
        return with_fill(numbers);
      }
      case Kind::kRotate:
        return rotate();
      case Kind::kPad:
        return pad();
      case Kind::kCrop:
        return {whole(-9, width_ + 9), whole(-9, height_ + 9), edge(), edge()};
      case Kind::kResize:
        return {random_.one_in(5) ? height_ : edge(), random_.one_in(5) ? width_ : edge(),
                whole(0, 5)};
      default:
        return factors(kind);
    }
  }

  /// As many numbers as the kind takes, each of which may be a factor or a share.
  Numbers factors(Operation::Kind kind) {
    for (int tries = 0; tries < 1000; ++tries) {
      Operation made{kind, {}};
      for (; made.numbers.size() <= 12; made.numbers.push_back(factor())) {
        try {
          validate(made);
          return made.numbers;
        } catch (const InvalidArgument&) {  // too few, or one that the kind does not take
        }
      }
    }
    throw Failure{std::string(name_of(kind)) + " takes other numbers: it needs a case here"};
  }

  Random& random_;
  double width_ = 0;
  double height_ = 0;
};

inline std::string describe(const Operation& operation, const ImageSize& size) {
  std::ostringstream text;
  text << name_of(operation.kind) << " of " << size.width << "x" << size.height << ":";
  for (const double number : operation.numbers) text << " " << number;
  return text.str();
}

}  // namespace fastloader::testing
