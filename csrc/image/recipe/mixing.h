#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/ops/operation.h"
#include "image/philox.h"

namespace fastloader {

/// How AugMix mixes a picture and what its chains of operations make of it. Two things are drawn,
/// both from Dirichlet distributions whose parameters are all alpha: the shares of the picture and
/// of its chains, and the weights of the chains. fastloader/transforms/_recipe/recipe.py repeats
/// it, and a test compares the two.
enum class Mixing : uint8_t {
  kSum,     ///< torchvision's: one sum of the picture and its chains, each by share and weight
  kBlend,   ///< timm's: the sum of the chains by weight, then a blend of the picture and that
  kBlends,  ///< timm's other form: each chain is blended with what came before
};

constexpr double kLeastAlpha = 1e-9;
constexpr double kMostAlpha = 1e9;

/// Throws InvalidArgument for an alpha that is not from the least to the most.
void validate_alpha(double alpha);

/// The numbers of a mix's operations, each of them one that float has.
struct MixNumbers {
  double begin;
  Operation::Kind kind;  // of what follows a chain
  std::vector<double> each;
  double end;
};

/// Expects an alpha that passed validate_alpha(), and one chain at least. Draws the shares, then
/// the weights.
MixNumbers draw_mix(Mixing mixing, double alpha, size_t chains, Draws& draws);

}  // namespace fastloader
