#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/ops/operation.h"
#include "image/recipe/mixing.h"
#include "image/recipe/number.h"
#include "image/recipe/sized.h"

namespace fastloader {

/// A step of a recipe, and those below it: a tree. Its leaves are operations with numbers that are
/// drawn for each picture; the other steps draw which of their children are done, and in which
/// order.
struct Step {
  enum class Kind : uint8_t {
    // A kind's place is part of what is drawn for it: another order changes every picture of a
    // seed.
    kOperation,  ///< `operation`, with each of `numbers` drawn
    kSized,      ///< `sized`, the same
    kAll,        ///< all children, one after the other
    kApply,      ///< all children, with `probability`; otherwise none
    kChoice,     ///< one child; child i with weights[i] of the weights' sum
    kOrder,      ///< all children, in an order that is drawn
    kSome,       ///< `count` different children, drawn one after the other by `weights`
    kFirst,      ///< the first children, one after the other; how many is drawn, from 1 to all
    kMix,        ///< each child does something to the same picture, and what comes out is mixed as
                 ///< `mixing` says, by weights that `alpha` says how to draw
    kCount,
  };

  Kind kind = Kind::kAll;
  Operation::Kind operation = Operation::Kind::kCount;
  Sized sized = Sized::kCount;
  std::vector<Number> numbers;
  double probability = 1;
  std::vector<double> weights;
  size_t count = 0;
  Mixing mixing = Mixing::kSum;
  double alpha = 1;
  std::vector<Step> children;
};

constexpr size_t kMostSteps = 4096;
constexpr size_t kMostStepDepth = 64;

/// Throws InvalidArgument unless the step itself can be drawn from, whatever its children: the
/// operation takes that many numbers, which pass validate(); constant ones are what it can take;
/// probabilities are in 0..1; there are as many weights as children, none negative, of a finite
/// sum, with `count` of them above 0 (a choice needs one); there are children where one is needed;
/// the operation is none of a mix, which only a step of that kind makes whole.
void validate(const Step& step);

}  // namespace fastloader
