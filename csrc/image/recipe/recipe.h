#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/ops/operation.h"
#include "image/recipe/number.h"

namespace fastloader {

/// A recipe: what may be done to the pixels of each picture, as a tree. Its leaves are operations
/// with numbers that are drawn for each picture; the other steps draw which of their children are
/// done, and in which order.
struct Step {
  enum class Kind : uint8_t {
    kOperation,  ///< `operation`, with each of `numbers` drawn
    kAll,        ///< all children, one after the other
    kApply,      ///< all children, with `probability`; otherwise none
    kChoice,     ///< one child; child i with weights[i] of the weights' sum
    kOrder,      ///< all children, in an order that is drawn
    kSome,       ///< `count` different children, drawn one after the other by `weights`
  };

  Kind kind = Kind::kAll;
  Operation::Kind operation = Operation::Kind::kCount;
  std::vector<Number> numbers;
  double probability = 1;
  std::vector<double> weights;
  size_t count = 0;
  std::vector<Step> children;
};

constexpr size_t kMostSteps = 4096;

/// A tree that can be drawn from.
///
/// Each step has random numbers of its own: those of its kind's operation number, and of how many
/// steps of that kind stand before it in the tree, parents before their children. So a step that is
/// put in front moves the draws of none but steps of its own kind, and what is drawn for a step
/// does not depend on what was drawn for others. fastloader/transforms/_recipe/recipe.py repeats
/// it.
class Recipe {
 public:
  /// Throws InvalidArgument unless probabilities are in 0..1, there are as many weights as
  /// children, none negative, with `count` of them above 0 (a choice needs one), numbers pass
  /// validate(), and steps are kMostSteps at most.
  explicit Recipe(Step root);

  /// The operations that are done to picture number `picture` of sample `index`, one after the
  /// other: a function of the arguments only.
  std::vector<Operation> draw(uint64_t seed, uint64_t index, uint32_t picture = 0) const;

 private:
  /// A step and what comes before its random numbers' blocks, in the order of the tree.
  struct Node {
    Step step;  // without its children
    uint32_t stream = 0;
    std::vector<size_t> children;
  };

  size_t add(Step step);
  void draw(size_t node, uint64_t seed, uint64_t index, uint32_t picture,
            std::vector<Operation>& operations) const;

  std::vector<Node> nodes_;
};

}  // namespace fastloader
