// Recipes: what is drawn can be done, gives pictures of the size that was foreseen, and is a
// function of the arguments only. That Python draws the same is a test of Python's.

#include "image/recipe/recipe.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "operation_samples.h"

namespace fastloader {
namespace {

using namespace testing;

using Kind = Step::Kind;

Number constant(double value) {
  Number number;
  number.a = value;
  return number;
}

Step operation(Operation drawn) {
  Step step;
  step.kind = Kind::kOperation;
  step.operation = drawn.kind;
  for (const double value : drawn.numbers) step.numbers.push_back(constant(value));
  return step;
}

Step sized(Sized kind, const std::vector<double>& numbers) {
  Step step;
  step.kind = Kind::kSized;
  step.sized = kind;
  for (const double value : numbers) step.numbers.push_back(constant(value));
  return step;
}

Step holder(Kind kind, std::vector<Step> children) {
  Step step;
  step.kind = kind;
  step.children = std::move(children);
  return step;
}

double edge(Random& random) { return static_cast<double>(random_edge(random)); }

Step random_sized(Random& random) {
  const auto border = [&] { return static_cast<double>(random.below(4)); };
  const auto mode = static_cast<double>(random.below(4));
  const auto kind = static_cast<Sized>(random.below(static_cast<size_t>(Sized::kCount)));
  switch (kind) {
    case Sized::kResizeShorter:
      return sized(Sized::kResizeShorter, {edge(random), 0, 2});
    case Sized::kCenterCrop:
      return sized(Sized::kCenterCrop, {edge(random), edge(random)});
    case Sized::kRandomCrop:
      return sized(Sized::kRandomCrop,
                   {edge(random), edge(random), static_cast<double>(random.below(3)), border(),
                    border(), border(), border(), mode, 1, 2, 3});
    case Sized::kRandomResizedCrop:
      return sized(Sized::kRandomResizedCrop, {edge(random), edge(random), 0.1, 1, 0.5, 2, 3});
    case Sized::kAffineAbout:
    case Sized::kAffineAboutV2: {
      Step step = sized(kind, {30, 2, -3, 1.25, 10, -5, 2, 4, 5, 6});
      step.numbers[0].from = Number::From::kUniform;
      step.numbers[0].a = -180;
      step.numbers[0].b = 180;
      return step;
    }
    case Sized::kRandomPerspective:
      return sized(Sized::kRandomPerspective, {0.5, 3, 7, 8, 9});
    case Sized::kCropOrPad:
      return sized(Sized::kCropOrPad,
                   {edge(random), edge(random), static_cast<double>(random.below(2)),
                    static_cast<double>(random.below(2)), mode, 1, 2, 3});
    case Sized::kResizeKeepRatio:
      return sized(Sized::kResizeKeepRatio, {edge(random), edge(random), 0.5, 1.1, 1, 0.05, 2});
    case Sized::kBlurBetween:
      return sized(Sized::kBlurBetween, {0.1, 2, 0.3});
    case Sized::kCount:
      break;
  }
  throw Failure{"a sized step without a sample"};
}

/// Chains that keep the size of what they get, but for one in ten.
Step random_mix(Random& random) {
  std::vector<Step> chains;
  for (size_t i = random.between(1, 3); i > 0; --i) {
    std::vector<Step> chain;
    for (size_t j = random.between(1, 3); j > 0; --j) {
      chain.push_back(operation({Operation::Kind::kSolarize, {edge(random)}}));
    }
    if (random.one_in(30)) chain.push_back(random_sized(random));
    chains.push_back(holder(random.one_in(2) ? Kind::kFirst : Kind::kAll, std::move(chain)));
  }
  Step step = holder(Kind::kMix, std::move(chains));
  step.mixing = static_cast<Mixing>(random.below(3));
  step.alpha = random.one_in(2) ? 1 : 0.01 * edge(random);
  return step;
}

Step random_step(Random& random, size_t depth) {
  if (depth == 0) {
    if (random.one_in(3)) return random_sized(random);
    return operation(OperationSamples(random).make({random_edge(random), random_edge(random)}));
  }
  if (random.one_in(5)) return random_mix(random);
  std::vector<Step> children;
  for (size_t i = random.between(1, 4); i > 0; --i) {
    children.push_back(random_step(random, random.below(depth)));
  }
  const Kind kinds[] = {Kind::kAll,   Kind::kApply, Kind::kChoice,
                        Kind::kOrder, Kind::kSome,  Kind::kFirst};
  Step step = holder(kinds[random.below(6)], std::move(children));
  step.probability = 0.5;
  if (step.kind == Kind::kChoice || step.kind == Kind::kSome) {
    step.weights.assign(step.children.size(), 1.5);
    step.count = random.below(step.children.size() + 1);
  }
  return step;
}

void refused(Step step, const char* why) {
  std::vector<Step> steps;
  steps.push_back(std::move(step));
  EXPECT_THROW(Recipe(std::move(steps)), InvalidArgument, why);
}

TEST(what_is_drawn_can_be_done_and_has_the_size_that_was_foreseen) {
  Random random(20261124);
  Canvas canvas;
  size_t done = 0;
  size_t not_allowed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Step> steps;
    for (size_t i = random.below(4); i > 0; --i) {
      steps.push_back(random_step(random, random.below(4)));
    }
    const Recipe recipe(std::move(steps));
    const ImageSize size{random_edge(random), random_edge(random)};
    const uint64_t seed = random.below(1 << 20);
    std::vector<Operation> operations;
    try {
      operations = recipe.draw(seed, 5, 1, size);
    } catch (const InvalidArgument&) {
      ++not_allowed;
      EXPECT_THROW(recipe.draw(seed, 5, 1, size), InvalidArgument, "");
      continue;
    }
    const std::vector<Operation> again = recipe.draw(seed, 5, 1, size);
    EXPECT_EQ(again.size(), operations.size());
    std::memset(canvas.begin(size), 77, canvas.bytes());
    ImageSize foreseen = size;
    for (size_t i = 0; i < operations.size(); ++i) {
      EXPECT(again[i].kind == operations[i].kind && again[i].numbers == operations[i].numbers);
      foreseen = size_after(operations[i], foreseen);
      apply(operations[i], canvas);
      EXPECT(canvas.size() == foreseen);
      ++done;
    }
  }
  EXPECT(done > 5000);
  EXPECT(not_allowed > 10 && not_allowed < 1500);
}

TEST(seeds_samples_and_pictures_draw_apart) {
  Step step = operation({Operation::Kind::kSolarize, {0}});
  step.numbers[0].from = Number::From::kUniform;
  step.numbers[0].b = 1;
  std::vector<Step> steps{step, step};
  const Recipe recipe(std::move(steps));
  const auto drawn = [&](uint64_t seed, uint64_t index, uint32_t picture, size_t place) {
    return recipe.draw(seed, index, picture, {2, 2})[place].numbers[0];
  };
  const double first = drawn(1, 2, 3, 0);
  EXPECT(first == drawn(1, 2, 3, 0));
  for (const double other : {drawn(1, 2, 3, 1), drawn(2, 2, 3, 0), drawn(1, 3, 3, 0),
                             drawn(1, 2, 4, 0), drawn(1, 2 + (uint64_t{1} << 32), 3, 0)}) {
    EXPECT(other != first);
  }
}

TEST(a_recipe_says_what_cannot_be_drawn_from_it) {
  const Step leaf = operation({Operation::Kind::kInvert, {}});
  Step step = holder(Kind::kApply, {leaf});
  step.probability = std::nan("");
  refused(step, "probability");
  step = holder(Kind::kChoice, {leaf, leaf});
  step.weights = {1};
  refused(step, "1 weights for 2");
  step.weights = {1e308, 1e308};
  refused(step, "weight");
  step.weights = {0, 0};
  refused(step, "above 0");
  step.kind = Kind::kSome;
  step.weights = {1, 0};
  step.count = 2;
  refused(step, "2 among 1");
  refused(holder(Kind::kFirst, {}), "has none");
  refused(holder(Kind::kMix, {}), "has none");
  step = holder(Kind::kMix, {leaf});
  for (const double alpha : {0.0, -1.0, 1e-10, 1e10, std::nan("")}) {
    step.alpha = alpha;
    refused(step, "alpha");
  }
  step.alpha = 1;
  refused(holder(Kind::kMix, {holder(Kind::kAll, {step})}), "a mix within a mix");
  refused(operation({Operation::Kind::kMixAdd, {0.5}}), "mix_add outside a mix");
  refused(operation({Operation::Kind::kPosterize, {}}), "numbers");
  refused(operation({Operation::Kind::kPosterize, {9}}), "posterize");
  refused(operation({Operation::Kind::kCount, {}}), "");
  refused(sized(Sized::kCenterCrop, {1}), "center_crop takes 2");
  step = leaf;
  step.kind = Kind::kCount;
  refused(step, "no such step");
  std::vector<Step> many(kMostSteps, leaf);
  refused(holder(Kind::kAll, std::move(many)), "4096");
  Step deep = leaf;
  for (size_t i = 0; i < kMostStepDepth; ++i) deep = holder(Kind::kAll, {std::move(deep)});
  refused(std::move(deep), "64 deep");
}

TEST(the_numbers_of_a_mix_are_those_of_its_form) {
  const Step leaf = operation({Operation::Kind::kInvert, {}});
  for (const double alpha : {kLeastAlpha, 1e-3, 0.3, 1.0, 7.0, kMostAlpha}) {
    for (const Mixing mixing : {Mixing::kSum, Mixing::kBlend, Mixing::kBlends}) {
      Step step = holder(Kind::kMix, {leaf, leaf, leaf});
      step.mixing = mixing;
      step.alpha = alpha;
      const Recipe recipe({step});
      for (uint64_t index = 0; index < 300; ++index) {
        const std::vector<Operation> drawn = recipe.draw(3, index, 0, {2, 2});
        EXPECT_EQ(drawn.size(), size_t{8});
        const double begin = drawn.front().numbers[0];
        const double end = drawn.back().numbers[0];
        double sum = 0;
        for (size_t i = 2; i < 8; i += 2) {
          sum += drawn[i].numbers[0];
          EXPECT(std::isfinite(drawn[i].numbers[0]));
          EXPECT(drawn[i].kind == (mixing == Mixing::kBlends ? Operation::Kind::kMixBlend
                                                             : Operation::Kind::kMixAdd));
        }
        if (mixing == Mixing::kSum) EXPECT(end == 1 && std::abs(begin + sum - 1) < 1e-6);
        if (mixing == Mixing::kBlend) EXPECT(begin == 0 && std::abs(sum - 1) < 1e-6);
        if (mixing == Mixing::kBlends) EXPECT(begin == 1 && end == 1);
      }
    }
  }
}

TEST(numbers_that_come_out_wrong_are_refused_when_they_are_drawn) {
  Step step = operation({Operation::Kind::kPosterize, {8}});
  step.numbers[0].unit = Number::Unit::kWidth;
  const Recipe recipe({step});
  const std::vector<Operation> drawn = recipe.draw(0, 0, 0, {1, 1});
  EXPECT_EQ(drawn[0].numbers[0], 8.0);
  EXPECT_THROW(recipe.draw(0, 0, 0, {1, 2}), InvalidArgument, "posterize");
  EXPECT_THROW(recipe.draw(0, 0, kMostPictures, {1, 1}), InvalidArgument, "4096");
}

TEST(numbers_of_every_form_are_finite) {
  Number number;
  const auto bad = [&](const char* why, const std::function<void(Number&)>& change) {
    Number changed = number;
    change(changed);
    EXPECT_THROW(validate(changed), InvalidArgument, why);
  };
  validate(number);
  bad("figure", [](Number& n) { n.a = std::nan(""); });
  bad("figure", [](Number& n) { n.scale = 1e101; });
  bad("between", [](Number& n) { n.low = 1, n.high = 0; });
  bad("not below", [](Number& n) { n.low = n.high; });
  bad("not above", [](Number& n) { n.high = n.low; });
  bad("from", [](Number& n) { n.from = Number::From::kUniform, n.a = 1; });
  bad("deviation", [](Number& n) { n.from = Number::From::kNormal, n.b = -1; });
  bad("0 values", [](Number& n) { n.from = Number::From::kTable; });
  bad("1 values", [](Number& n) { n.values = {1}; });
  // The largest that there is: a normal deviate of the largest figures, scaled by one.
  number.from = Number::From::kNormal;
  number.a = number.b = number.scale = number.offset = number.after = 1e100;
  number.unit = Number::Unit::kHeight;
  validate(number);
  for (uint64_t index = 0; index < 1000; ++index) {
    Draws draws(3, index, 0);
    EXPECT(std::isfinite(draw(number, {kMaxImageEdge, 1}, draws)));
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
