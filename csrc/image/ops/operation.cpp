#include "image/ops/operation.h"

#include <cmath>

#include "base/error.h"
#include "image/ops/frame.h"
#include "image/ops/lookup.h"
#include "image/ops/rotate.h"
#include "image/ops/warp.h"

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

// In the order of Operation::Kind.
const Kind kKinds[] = {
    {"invert", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { invert(canvas); }},
    {"affine", 10, 10, check_affine, affine},
    {"perspective", 12, 12, check_perspective, perspective},
    {"rotate", 6, 8, check_rotate, rotate},
    {"pad", 8, 8, check_pad, pad},
    {"crop", 4, 4, check_crop, crop},
    {"hflip", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { hflip(canvas); }},
    {"vflip", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { vflip(canvas); }},
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
