#include "image/recipe/recipe.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

static_assert(kMostSteps <= kMostOccurrences);
static_assert(kDrawFirstStep + static_cast<uint32_t>(Step::Kind::kCount) <= kDrawFirstSized);
static_assert(kDrawFirstSized + static_cast<uint32_t>(Sized::kCount) <= kDrawFirstOperation);
static_assert(kDrawFirstOperation + static_cast<uint32_t>(Operation::Kind::kCount) <=
              uint32_t{1} << kOccurrenceShift);

uint32_t draw_number(const Step& step) {
  if (step.kind == Step::Kind::kOperation) {
    return kDrawFirstOperation + static_cast<uint32_t>(step.operation);
  }
  if (step.kind == Step::Kind::kSized) {
    return kDrawFirstSized + static_cast<uint32_t>(step.sized);
  }
  return kDrawFirstStep + static_cast<uint32_t>(step.kind);
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
    case Step::Kind::kFirst:
      all.resize(1 + static_cast<size_t>(draws.below(children)));
      return all;
    case Step::Kind::kOperation:
    case Step::Kind::kSized:
    case Step::Kind::kAll:
    case Step::Kind::kMix:
    case Step::Kind::kCount:
      return all;
  }
  return all;
}

}  // namespace

Recipe::Recipe(std::vector<Step> steps) {
  for (Step& step : steps) roots_.push_back(add(std::move(step), 1, false));
}

size_t Recipe::add(Step step, size_t depth, bool in_mix) {
  validate(step);
  if (nodes_.size() == kMostSteps) {
    throw InvalidArgument("a recipe of more than " + std::to_string(kMostSteps) + " steps");
  }
  if (depth > kMostStepDepth) {
    throw InvalidArgument("steps within steps, more than " + std::to_string(kMostStepDepth) +
                          " deep");
  }
  const bool mixes = step.kind == Step::Kind::kMix;
  if (mixes && in_mix) throw InvalidArgument("a mix within a mix");
  const uint32_t number = draw_number(step);
  const auto before = std::count_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return draw_number(node.step) == number;
  });
  const size_t place = nodes_.size();
  std::vector<Step> children = std::move(step.children);
  step.children.clear();
  nodes_.push_back(
      {std::move(step), number | static_cast<uint32_t>(before) << kOccurrenceShift, {}});
  for (Step& child : children) {
    const size_t added = add(std::move(child), depth + 1, in_mix || mixes);
    nodes_[place].children.push_back(added);
  }
  return place;
}

std::vector<Operation> Recipe::draw(uint64_t seed, uint64_t index, uint32_t picture,
                                    const ImageSize& size) const {
  if (picture >= kMostPictures) {
    throw InvalidArgument("picture " + std::to_string(picture) + " of a sample; " +
                          std::to_string(kMostPictures) + " are the most");
  }
  Drawing drawing{seed, index, picture, size, {}};
  for (const size_t root : roots_) visit(root, drawing);
  return std::move(drawing.operations);
}

void Recipe::visit(size_t node, Drawing& drawing) const {
  const auto& [step, stream, children] = nodes_[node];
  Draws draws(drawing.seed, drawing.index, stream | drawing.picture << kPictureShift);
  if (step.kind == Step::Kind::kMix) return mix(nodes_[node], draws, drawing);
  if (step.kind != Step::Kind::kOperation && step.kind != Step::Kind::kSized) {
    for (const size_t child : chosen(step, children.size(), draws)) {
      visit(children[child], drawing);
    }
    return;
  }
  std::vector<double> numbers;
  for (const Number& number : step.numbers) {
    numbers.push_back(fastloader::draw(number, drawing.size, draws));
  }
  const size_t before = drawing.operations.size();
  if (step.kind == Step::Kind::kOperation) {
    drawing.operations.push_back({step.operation, std::move(numbers)});
  } else {
    draw_sized(step.sized, numbers, drawing.size, draws, drawing.operations);
  }
  for (size_t i = before; i < drawing.operations.size(); ++i) {
    validate(drawing.operations[i]);
    drawing.size = size_after(drawing.operations[i], drawing.size);
  }
}

void Recipe::mix(const Node& node, Draws& draws, Drawing& drawing) const {
  const MixNumbers numbers =
      draw_mix(node.step.mixing, node.step.alpha, node.children.size(), draws);
  const ImageSize size = drawing.size;
  drawing.operations.push_back({Operation::Kind::kMixBegin, {numbers.begin}});
  for (size_t i = 0; i < node.children.size(); ++i) {
    visit(node.children[i], drawing);
    if (!(drawing.size == size)) {
      throw InvalidArgument("a mix of pictures of different sizes: " + std::to_string(size.height) +
                            "x" + std::to_string(size.width) + " and " +
                            std::to_string(drawing.size.height) + "x" +
                            std::to_string(drawing.size.width));
    }
    drawing.operations.push_back({numbers.kind, {numbers.each[i]}});
  }
  drawing.operations.push_back({Operation::Kind::kMixEnd, {numbers.end}});
}

}  // namespace fastloader
