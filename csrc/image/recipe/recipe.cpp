#include "image/recipe/recipe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

// Operation numbers of Draws. Those below 16 are of the geometry (crop.h), 16 and 17 of erasing.
constexpr uint32_t kFirstStepDraw = 32;       // + Step::Kind, for what is no operation
constexpr uint32_t kFirstOperationDraw = 64;  // + Operation::Kind
// In the word that Draws has for the operation, behind its number: how often it came before, and
// which picture of the sample it is.
constexpr uint32_t kNumberBits = 8;
constexpr uint32_t kOccurrenceBits = 12;
constexpr uint32_t kMostPictures = uint32_t{1} << (32 - kNumberBits - kOccurrenceBits);
static_assert(kMostSteps <= size_t{1} << kOccurrenceBits);
static_assert(kFirstOperationDraw + static_cast<uint32_t>(Operation::Kind::kCount) <=
              uint32_t{1} << kNumberBits);

uint32_t draw_number(const Step& step) {
  if (step.kind == Step::Kind::kOperation) {
    return kFirstOperationDraw + static_cast<uint32_t>(step.operation);
  }
  return kFirstStepDraw + static_cast<uint32_t>(step.kind);
}

void check_weights(const Step& step, size_t wanted) {
  if (step.weights.size() != step.children.size()) {
    throw InvalidArgument(std::to_string(step.weights.size()) + " weights for " +
                          std::to_string(step.children.size()) + " steps to choose from");
  }
  size_t possible = 0;
  for (const double weight : step.weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw InvalidArgument("a choice with the weight " + std::to_string(weight));
    }
    if (weight > 0) ++possible;
  }
  if (possible < wanted) {
    throw InvalidArgument("a choice of " + std::to_string(wanted) + " among " +
                          std::to_string(possible) + " steps with a weight above 0");
  }
}

void check(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kOperation:
      if (step.operation >= Operation::Kind::kCount) throw InvalidArgument("no such operation");
      for (const Number& number : step.numbers) validate(number);
      return;
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
    case Step::Kind::kAll:
    case Step::Kind::kOrder:
      return;
  }
}

/// Different children, each drawn by the weights of those that are left.
std::vector<size_t> some(std::vector<double> weights, size_t count, Draws& draws) {
  std::vector<size_t> found;
  while (found.size() < count) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    double rest = draws.uniform() * sum;
    size_t last = 0;  // the one that counts where rounding leaves a rest behind all weights
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      last = i;
      if (rest < weights[i]) break;
      rest -= weights[i];
    }
    found.push_back(last);
    weights[last] = 0;
  }
  return found;
}

/// The children that are done, in their order.
std::vector<size_t> chosen(const Step& step, size_t children, Draws& draws) {
  std::vector<size_t> all(children);
  std::iota(all.begin(), all.end(), size_t{0});
  switch (step.kind) {
    case Step::Kind::kApply:
      if (!(draws.uniform() < step.probability)) all.clear();
      return all;
    case Step::Kind::kChoice:
      return some(step.weights, 1, draws);
    case Step::Kind::kSome:
      return some(step.weights, step.count, draws);
    case Step::Kind::kOrder:
      for (size_t left = children; left > 1; --left) {
        std::swap(all[left - 1], all[static_cast<size_t>(draws.below(left))]);
      }
      return all;
    case Step::Kind::kOperation:
    case Step::Kind::kAll:
      return all;
  }
  return all;
}

}  // namespace

Recipe::Recipe(Step root) { add(std::move(root)); }

size_t Recipe::add(Step step) {
  check(step);
  if (nodes_.size() == kMostSteps) {
    throw InvalidArgument("a recipe of more than " + std::to_string(kMostSteps) + " steps");
  }
  const uint32_t number = draw_number(step);
  const auto before = std::count_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return draw_number(node.step) == number;
  });
  const size_t place = nodes_.size();
  std::vector<Step> children = std::move(step.children);
  step.children.clear();
  nodes_.push_back({std::move(step), number | static_cast<uint32_t>(before) << kNumberBits, {}});
  for (Step& child : children) {
    const size_t added = add(std::move(child));
    nodes_[place].children.push_back(added);
  }
  return place;
}

std::vector<Operation> Recipe::draw(uint64_t seed, uint64_t index, uint32_t picture) const {
  if (picture >= kMostPictures) {
    throw InvalidArgument("picture " + std::to_string(picture) + " of a sample; " +
                          std::to_string(kMostPictures) + " are the most");
  }
  std::vector<Operation> operations;
  draw(0, seed, index, picture, operations);
  return operations;
}

void Recipe::draw(size_t node, uint64_t seed, uint64_t index, uint32_t picture,
                  std::vector<Operation>& operations) const {
  const auto& [step, stream, children] = nodes_[node];
  Draws draws(seed, index, stream | picture << (kNumberBits + kOccurrenceBits));
  if (step.kind == Step::Kind::kOperation) {
    Operation operation;
    operation.kind = step.operation;
    for (const Number& number : step.numbers) {
      operation.numbers.push_back(fastloader::draw(number, draws));
    }
    operations.push_back(std::move(operation));
    return;
  }
  for (const size_t child : chosen(step, children.size(), draws)) {
    draw(children[child], seed, index, picture, operations);
  }
}

}  // namespace fastloader
