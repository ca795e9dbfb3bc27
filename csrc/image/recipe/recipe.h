#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/draw_numbers.h"
#include "image/ops/operation.h"
#include "image/recipe/step.h"

namespace fastloader {

/// A recipe: what may be done to the pixels of each picture, as steps that are done one after the
/// other, each of them a tree.
///
/// Each step has random numbers of its own (draw_numbers.h), so that what is drawn for a step does
/// not depend on what was drawn for others. fastloader/transforms/_recipe/recipe.py repeats it.
class Recipe {
 public:
  /// Throws what validate(Step) throws, and InvalidArgument for more than kMostSteps steps, steps
  /// within steps more than kMostStepDepth deep, or a mix within a mix.
  explicit Recipe(std::vector<Step> steps);

  bool empty() const { return roots_.empty(); }

  /// The operations that are done to picture number `picture` of sample `index`, one after the
  /// other, if it has this size when the first of them begins: a function of the arguments only.
  /// Each passed validate(). Throws InvalidArgument where a step cannot be done to it.
  std::vector<Operation> draw(uint64_t seed, uint64_t index, uint32_t picture,
                              const ImageSize& size) const;

 private:
  struct Node {
    Step step;  // without its children
    uint32_t stream = 0;
    std::vector<size_t> children;
  };
  /// What is being drawn, and how far it has come.
  struct Drawing {
    uint64_t seed;
    uint64_t index;
    uint32_t picture;
    ImageSize size;  // of the picture that the next operation gets
    std::vector<Operation> operations;
  };

  size_t add(Step step, size_t depth, bool in_mix);
  void visit(size_t node, Drawing& drawing) const;
  void mix(const Node& node, Draws& draws, Drawing& drawing) const;

  std::vector<Node> nodes_;
  std::vector<size_t> roots_;
};

}  // namespace fastloader
