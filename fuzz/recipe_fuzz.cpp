// Any tree of steps with any numbers: it is refused with InvalidArgument, or it can be drawn from
// and done to a picture, which then has the size that was foreseen. Anything else aborts.
//
//   recipe_fuzz RUNS [SEED [FIRST]]
//
// FASTLOADER_FUZZ_KEEP names a file that holds the arguments which begin with the run that ended
// it.

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/ops/operation.h"
#include "image/recipe/recipe.h"
#include "random.h"

namespace {

using namespace fastloader;
using testing::Random;

constexpr size_t kMostEdge = 40;
/// A picture that an operation would make larger than this is not made here.
constexpr size_t kMostPixels = size_t{1} << 18;
constexpr double kMostSeconds = 2;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// What people write, what lies beside it, and what nobody would write.
double any_number(Random& random) {
  switch (random.below(12)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return random.chance(50) ? HUGE_VAL : -HUGE_VAL;
    case 2:
      return std::ldexp(1.0, static_cast<int>(random.below(700)) - 350) *
             (random.chance(50) ? 1 : -1);
    case 3:
      return static_cast<double>(random.next());
    case 4:
    case 5:
      return 0;
    case 6:
      return 1;
    case 7:
      return -static_cast<double>(random.below(300));
    case 8:
    case 9:
      return static_cast<double>(random.below(300));
    default:
      return static_cast<double>(random.below(1 << 20)) / (1 << 18) - 1;
  }
}

Number number_of(Random& random) {
  Number number;
  number.a = any_number(random);
  if (random.chance(60)) return number;
  number.from = static_cast<Number::From>(random.below(4));
  number.b = random.chance(50) ? number.a + std::abs(any_number(random)) : any_number(random);
  if (random.chance(20)) number.low = any_number(random);
  if (random.chance(20)) number.high = any_number(random);
  if (random.chance(20)) number.scale = any_number(random);
  if (random.chance(20)) number.offset = any_number(random);
  if (random.chance(20)) number.after = any_number(random);
  number.unit = static_cast<Number::Unit>(random.below(3));
  number.round = static_cast<Number::Round>(random.below(3));
  number.either_sign = random.chance(20);
  if (number.from == Number::From::kTable || random.chance(5)) {
    for (uint32_t i = random.below(4); i > 0; --i) number.values.push_back(any_number(random));
  }
  return number;
}

Step step_of(Random& random, uint32_t depth) {
  Step step;
  constexpr Step::Kind kHolders[] = {Step::Kind::kAll, Step::Kind::kApply, Step::Kind::kChoice,
                                     Step::Kind::kOrder, Step::Kind::kSome};
  step.kind = kHolders[random.below(5)];
  if (depth == 0) step.kind = random.chance(60) ? Step::Kind::kOperation : Step::Kind::kSized;
  if (random.chance(5)) {
    step.kind =
        static_cast<Step::Kind>(random.below(static_cast<uint32_t>(Step::Kind::kCount) + 1));
  }
  step.operation = static_cast<Operation::Kind>(
      random.below(static_cast<uint32_t>(Operation::Kind::kCount) + (random.chance(2) ? 1 : 0)));
  step.sized = static_cast<Sized>(random.below(static_cast<uint32_t>(Sized::kCount)));
  const uint32_t numbers = random.below(13);
  for (uint32_t i = 0; i < numbers; ++i) step.numbers.push_back(number_of(random));
  step.probability = random.chance(98) ? 0.5 : any_number(random);
  step.count = random.below(3);
  if (depth == 0) return step;
  for (uint32_t i = random.below(5); i > 0; --i) {
    step.children.push_back(step_of(random, random.below(depth)));
    step.weights.push_back(random.chance(98) ? 1 : any_number(random));
  }
  if (random.chance(2)) step.weights.push_back(1);
  return step;
}

/// Numbers that the steps can take, so that more than their count is looked at. `hostile` in a
/// hundred steps get one that is any number.
void fit(Random& random, uint32_t hostile, Step& step) {
  for (Step& child : step.children) fit(random, hostile, child);
  if (step.kind != Step::Kind::kOperation && step.kind != Step::Kind::kSized) return;
  for (uint32_t tried = 0; tried < 200; ++tried) {
    Step other = step;
    other.numbers.assign(random.below(13), Number{});
    // Small whole numbers are codes, edges, probabilities and colours at once.
    const uint32_t most = random.chance(70) ? 3 : 60;
    for (Number& number : other.numbers) number.a = static_cast<double>(random.below(most));
    try {
      validate(other);
    } catch (const InvalidArgument&) {
      continue;
    }
    if (!other.numbers.empty() && random.chance(hostile)) {
      other.numbers[random.below(static_cast<uint32_t>(other.numbers.size()))] = number_of(random);
    }
    step = std::move(other);
    return;
  }
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "recipe_fuzz: %s\n", what);
  std::abort();
}

/// Returns how many operations were done.
size_t run(Random& random, Canvas& canvas) {
  std::vector<Step> steps;
  const uint32_t hostile = random.chance(50) ? 0 : random.below(60);
  for (uint32_t i = random.below(4); i > 0; --i) {
    steps.push_back(step_of(random, random.below(3)));
    if (random.chance(95)) fit(random, hostile, steps.back());
  }
  const ImageSize size{random.between(1, kMostEdge), random.between(1, kMostEdge)};
  std::vector<Operation> operations;
  try {
    operations = Recipe(std::move(steps)).draw(random.next(), random.next(), 0, size);
  } catch (const InvalidArgument&) {
    return 0;
  }
  std::memset(canvas.begin(size), 99, size.height * size.width * Canvas::kRgb);
  size_t done = 0;
  for (const Operation& operation : operations) {
    const ImageSize foreseen = size_after(operation, canvas.size());
    if (foreseen.height * foreseen.width > kMostPixels) break;
    apply(operation, canvas);
    if (!(canvas.size() == foreseen)) fail("a picture of another size than foreseen");
    ++done;
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const uint64_t first = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const char* const keep = std::getenv("FASTLOADER_FUZZ_KEEP");
  const int kept =
      keep == nullptr ? -1 : open(keep, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  Canvas canvas;
  size_t done = 0;
  for (uint64_t i = first; i < runs; ++i) {
    if (kept >= 0) {
      char text[96];
      const int length = std::snprintf(
          text, sizeof(text), "%20llu %20llu %20llu\n", static_cast<unsigned long long>(runs),
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(i));
      if (pwrite(kept, text, static_cast<size_t>(length), 0) != length) fail("nothing is kept");
    }
    Random random(seed * 0x9e3779b97f4a7c15u + i);
    const double begun = thread_seconds();
    try {
      done += run(random, canvas);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "recipe_fuzz %llu: %s\n", static_cast<unsigned long long>(i),
                   error.what());
      std::abort();
    }
    if (thread_seconds() - begun > kMostSeconds) fail("its work is not bounded");
  }
  std::printf("%llu recipes, %zu operations done\n", static_cast<unsigned long long>(runs), done);
  if (first == 0 && runs >= 1000 && done < runs / 10) fail("hardly a recipe could be done");
  return 0;
}
