#include "image/recipe/mixing.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "image/recipe/number.h"

namespace fastloader {
namespace {

/// The logarithm of a gamma deviate, after Marsaglia and Tsang, "A simple method for generating
/// gamma variables", 2000. Of a small alpha the deviate itself may be too small for a double.
double log_of_gamma(double alpha, Draws& draws) {
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3.0;
  const double c = 1 / std::sqrt(9 * d);
  double v = 0;
  for (;;) {
    const double x = standard_normal(draws);
    const double u = 1 - draws.uniform();  // never 0
    const double root = 1 + c * x;
    if (!(root > 0)) continue;
    v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) break;
  }
  double found = std::log(d * v);
  if (alpha < 1) found += std::log(1 - draws.uniform()) / alpha;
  return found;
}

std::vector<float> dirichlet(double alpha, size_t count, Draws& draws) {
  std::vector<double> shares;
  for (size_t i = 0; i < count; ++i) shares.push_back(log_of_gamma(alpha, draws));
  const double most = *std::max_element(shares.begin(), shares.end());
  double sum = 0;
  for (double& share : shares) {
    share = std::exp(share - most);
    sum += share;
  }
  std::vector<float> made;
  for (const double share : shares) made.push_back(static_cast<float>(share / sum));
  return made;
}

/// The factors with which one blend after the other gives the chains their weights, in timm's
/// order of operations. What its rounding makes no finite number belongs to a chain that the next
/// ones hide.
std::vector<double> blend_factors(const std::vector<float>& weights, float share) {
  std::vector<double> factors(weights.size());
  float left = 1;
  for (size_t i = weights.size(); i-- > 0;) {
    float factor = weights[i] * share / left;
    if (!std::isfinite(factor)) factor = 0;
    left *= 1 - factor;
    factors[i] = static_cast<double>(factor);
  }
  return factors;
}

}  // namespace

void validate_alpha(double alpha) {
  // Written so that NaN is refused.
  if (alpha >= kLeastAlpha && alpha <= kMostAlpha) return;
  throw InvalidArgument("a mix with the alpha " + std::to_string(alpha) +
                        "; 1e-9 to 1e9 is allowed");
}

MixNumbers draw_mix(Mixing mixing, double alpha, size_t chains, Draws& draws) {
  const std::vector<float> shares = dirichlet(alpha, 2, draws);
  const std::vector<float> weights = dirichlet(alpha, chains, draws);
  MixNumbers made{0, Operation::Kind::kMixAdd, {}, 1};
  switch (mixing) {
    case Mixing::kSum:
      made.begin = static_cast<double>(shares[0]);
      for (const float weight : weights)
        made.each.push_back(static_cast<double>(weight * shares[1]));
      break;
    case Mixing::kBlend:
      made.each.assign(weights.begin(), weights.end());
      made.end = static_cast<double>(shares[1]);
      break;
    case Mixing::kBlends:
      made.begin = 1;
      made.kind = Operation::Kind::kMixBlend;
      made.each = blend_factors(weights, shares[1]);
      break;
  }
  return made;
}

}  // namespace fastloader
