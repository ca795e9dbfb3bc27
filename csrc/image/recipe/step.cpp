#include "image/recipe/step.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

bool constant(const Number& number) {
  return number.from == Number::From::kConstant && number.unit == Number::Unit::kOne &&
         !number.either_sign;
}

void check_leaf(const Step& step) {
  for (const Number& number : step.numbers) validate(number);
  if (step.kind == Step::Kind::kSized) return check_count(step.sized, step.numbers.size());
  // Constants are checked here, all together, so that what is wrong from the start is said at the
  // start. Whoever draws the others checks what came out.
  Operation operation;
  operation.kind = step.operation;
  check_count(operation.kind, step.numbers.size());
  if (effect_of(operation.kind) == Operation::Effect::kMix) {
    throw InvalidArgument(std::string(name_of(operation.kind)) + " outside a mix");
  }
  Draws none(0, 0, 0);
  for (const Number& number : step.numbers) {
    operation.numbers.push_back(constant(number) ? draw(number, {1, 1}, none) : 0);
  }
  if (std::all_of(step.numbers.begin(), step.numbers.end(), constant)) validate(operation);
}

void check_weights(const Step& step, size_t wanted) {
  if (step.weights.size() != step.children.size()) {
    throw InvalidArgument(std::to_string(step.weights.size()) + " weights for " +
                          std::to_string(step.children.size()) + " steps to choose from");
  }
  size_t possible = 0;
  double sum = 0;
  for (const double weight : step.weights) {
    sum += weight;
    if (!(weight >= 0) || !std::isfinite(sum)) {
      throw InvalidArgument("a choice with the weight " + std::to_string(weight));
    }
    if (weight > 0) ++possible;
  }
  if (possible < wanted) {
    throw InvalidArgument("a choice of " + std::to_string(wanted) + " among " +
                          std::to_string(possible) + " steps with a weight above 0");
  }
}

void check_children(const Step& step) {
  if (step.children.empty()) throw InvalidArgument("a step that needs others within it has none");
}

}  // namespace

void validate(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kOperation:
    case Step::Kind::kSized:
      return check_leaf(step);
    case Step::Kind::kApply:
      if (!(step.probability >= 0 && step.probability <= 1)) {
        throw InvalidArgument("steps with probability " + std::to_string(step.probability) +
                              "; 0 to 1 is allowed");
      }
      return;
    case Step::Kind::kChoice:
      return check_weights(step, 1);
    case Step::Kind::kSome:
      return check_weights(step, step.count);
    case Step::Kind::kMix:
      validate_alpha(step.alpha);
      return check_children(step);
    case Step::Kind::kFirst:
      return check_children(step);
    case Step::Kind::kAll:
    case Step::Kind::kOrder:
      return;
    case Step::Kind::kCount:
      break;
  }
  throw InvalidArgument("no such step");
}

}  // namespace fastloader
