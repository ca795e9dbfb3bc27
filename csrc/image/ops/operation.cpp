#include "image/ops/operation.h"

#include <cfloat>
#include <cmath>

#include "base/error.h"
#include "image/ops/gaussian_blur.h"
#include "image/ops/lookup.h"
#include "image/ops/pillow_blur.h"
#include "image/ops/sharpness.h"

namespace fastloader {
namespace {

using Numbers = std::vector<double>;

/// A kind as it is written down here once: its name, how many numbers it takes, what it does.
struct Kind {
  const char* name;
  size_t least;
  size_t most;
  void (*check)(const Numbers& numbers);  // beyond their count; may be null
  void (*apply)(const Numbers& numbers, Canvas& canvas);
};

/// Pillow computes with the factor as a float, which must not become infinite.
void check_sharpness(const Numbers& numbers) {
  if (std::fabs(numbers[0]) > static_cast<double>(FLT_MAX)) {
    throw InvalidArgument("sharpness with the factor " + std::to_string(numbers[0]));
  }
}

void check_pillow_blur(const Numbers& numbers) {
  for (const double radius : numbers) {
    if (std::fabs(radius) > kMaxPillowBlur) {
      throw InvalidArgument("pillow_blur with the radius " + std::to_string(radius));
    }
  }
}

void check_gaussian_blur(const Numbers& numbers) {
  for (const double edge : {numbers[0], numbers[1]}) {
    if (!(edge >= 1 && edge <= static_cast<double>(kMaxGaussianKernel)) ||
        std::fmod(edge, 2.0) != 1.0) {
      throw InvalidArgument("gaussian_blur takes kernels of an odd number of pixels up to " +
                            std::to_string(kMaxGaussianKernel) + ", not " + std::to_string(edge));
    }
  }
  for (const double sigma : {numbers[2], numbers[3]}) {
    if (!(sigma > 0)) {
      throw InvalidArgument("gaussian_blur with the sigma " + std::to_string(sigma));
    }
  }
}

// In the order of Operation::Kind.
const Kind kKinds[] = {
    {"invert", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { invert(canvas); }},
    {"sharpness", 1, 1, check_sharpness,
     [](const Numbers& numbers, Canvas& canvas) { sharpness(canvas, numbers[0]); }},
    {"pillow_blur", 2, 2, check_pillow_blur,
     [](const Numbers& numbers, Canvas& canvas) { pillow_blur(canvas, numbers[0], numbers[1]); }},
    {"gaussian_blur", 4, 4, check_gaussian_blur,
     [](const Numbers& numbers, Canvas& canvas) {
       gaussian_blur(canvas, static_cast<size_t>(numbers[0]), static_cast<size_t>(numbers[1]),
                     numbers[2], numbers[3]);
     }},
};
static_assert(sizeof(kKinds) / sizeof(kKinds[0]) == static_cast<size_t>(Operation::Kind::kCount));

const Kind& kind_of(const Operation& operation) {
  return kKinds[static_cast<size_t>(operation.kind)];
}

}  // namespace

const char* name_of(Operation::Kind kind) { return kKinds[static_cast<size_t>(kind)].name; }

Operation::Kind operation_kind(const std::string& name) {
  size_t number = 0;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return static_cast<Operation::Kind>(number);
    ++number;
  }
  throw InvalidArgument("there is no operation " + name);
}

void validate(const Operation& operation) {
  const Kind& kind = kind_of(operation);
  const Numbers& numbers = operation.numbers;
  if (numbers.size() < kind.least || numbers.size() > kind.most) {
    throw InvalidArgument(std::string(kind.name) + " takes " + std::to_string(kind.least) + " to " +
                          std::to_string(kind.most) + " numbers, not " +
                          std::to_string(numbers.size()));
  }
  for (const double number : numbers) {
    if (!std::isfinite(number)) {
      throw InvalidArgument(std::string(kind.name) + " with the number " + std::to_string(number));
    }
  }
  if (kind.check != nullptr) kind.check(numbers);
}

void apply(const Operation& operation, Canvas& canvas) {
  const Kind& kind = kind_of(operation);
  kind.apply(operation.numbers, canvas);
}

}  // namespace fastloader
