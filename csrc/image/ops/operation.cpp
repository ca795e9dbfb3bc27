#include "image/ops/operation.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "image/ops/enhance.h"
#include "image/ops/frame.h"
#include "image/ops/gaussian_blur.h"
#include "image/ops/hue.h"
#include "image/ops/lookup.h"
#include "image/ops/pillow_blur.h"
#include "image/ops/rotate.h"
#include "image/ops/sharpness.h"
#include "image/ops/warp.h"

namespace fastloader {
namespace {

using Numbers = std::vector<double>;

/// A kind as it is written down here once: its name, how many numbers it takes, what it does.
struct Kind {
  const char* name;
  size_t least;
  size_t most;
  void (*check)(const Numbers& numbers);  // beyond their count; may be null
  void (*apply)(const Numbers& numbers, Canvas& canvas);
};

template <void (*kEnhance)(float factor, Canvas& canvas)>
void enhance(const Numbers& numbers, Canvas& canvas) {
  kEnhance(static_cast<float>(numbers[0]), canvas);
}

void refuse(const char* name, const char* wanted, double number) {
  throw InvalidArgument(std::string(name) + " takes " + wanted + ", not " + std::to_string(number));
}

/// Pillow blends in float, in which a number may be too large to be finite.
template <const char* kName>
void check_factor(const Numbers& numbers) {
  if (!(std::abs(numbers[0]) <= static_cast<double>(std::numeric_limits<float>::max()))) {
    refuse(kName, "a factor that float can hold", numbers[0]);
  }
}

void check_posterize(const Numbers& numbers) {
  const double bits = numbers[0];
  if (!(bits >= 0 && bits <= 8) || bits != std::trunc(bits)) {
    refuse("posterize", "0 to 8 bits", bits);
  }
}

void check_solarize_add(const Numbers& numbers) {
  const double add = numbers[0];
  if (!(std::abs(add) <= std::numeric_limits<int>::max()) || add != std::trunc(add)) {
    refuse("solarize_add", "an integer to add", add);
  }
}

void check_hue(const Numbers& numbers) {
  if (!(std::abs(numbers[0]) <= 0.5)) refuse("hue", "-0.5 to 0.5 of a turn", numbers[0]);
}

void check_pillow_blur(const Numbers& numbers) {
  for (const double radius : numbers) {
    if (std::abs(radius) > kMaxPillowBlur) refuse("pillow_blur", "a smaller radius", radius);
  }
}

void check_gaussian_blur(const Numbers& numbers) {
  for (const double edge : {numbers[0], numbers[1]}) {
    if (!(edge >= 1 && edge <= static_cast<double>(kMaxGaussianKernel)) ||
        std::fmod(edge, 2.0) != 1.0) {
      throw InvalidArgument("gaussian_blur takes kernels of an odd number of pixels up to " +
                            std::to_string(kMaxGaussianKernel) + ", not " + std::to_string(edge));
    }
  }
  for (const double sigma : {numbers[2], numbers[3]}) {
    if (!(sigma > 0)) refuse("gaussian_blur", "a sigma above 0", sigma);
  }
}

constexpr char kBrightness[] = "brightness";
constexpr char kContrast[] = "contrast";
constexpr char kSaturation[] = "saturation";
constexpr char kSharpness[] = "sharpness";

// In the order of Operation::Kind.
const Kind kKinds[] = {
    {"invert", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { invert(canvas); }},
    {"posterize", 1, 1, check_posterize,
     [](const Numbers& numbers, Canvas& canvas) {
       posterize(static_cast<int>(numbers[0]), canvas);
     }},
    {"solarize", 1, 1, nullptr,
     [](const Numbers& numbers, Canvas& canvas) { solarize(numbers[0], canvas); }},
    {"solarize_add", 1, 2, check_solarize_add,
     [](const Numbers& numbers, Canvas& canvas) {
       solarize_add(static_cast<int>(numbers[0]), numbers.size() > 1 ? numbers[1] : 128, canvas);
     }},
    {"autocontrast", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { autocontrast(canvas); }},
    {"equalize", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { equalize(canvas); }},
    {kBrightness, 1, 1, check_factor<kBrightness>, enhance<brightness>},
    {kContrast, 1, 1, check_factor<kContrast>, enhance<contrast>},
    {kSaturation, 1, 1, check_factor<kSaturation>, enhance<saturation>},
    {"grayscale", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { grayscale(canvas); }},
    {"hue", 1, 1, check_hue,
     [](const Numbers& numbers, Canvas& canvas) { hue(numbers[0], canvas); }},
    {kSharpness, 1, 1, check_factor<kSharpness>,
     [](const Numbers& numbers, Canvas& canvas) { sharpness(canvas, numbers[0]); }},
    {"pillow_blur", 2, 2, check_pillow_blur,
     [](const Numbers& numbers, Canvas& canvas) { pillow_blur(canvas, numbers[0], numbers[1]); }},
    {"gaussian_blur", 4, 4, check_gaussian_blur,
     [](const Numbers& numbers, Canvas& canvas) {
       gaussian_blur(canvas, static_cast<size_t>(numbers[0]), static_cast<size_t>(numbers[1]),
                     numbers[2], numbers[3]);
     }},
    {"affine", 10, 10, check_affine, affine},
    {"perspective", 12, 12, check_perspective, perspective},
    {"rotate", 6, 8, check_rotate, rotate},
    {"pad", 8, 8, check_pad, pad},
    {"crop", 4, 4, check_crop, crop},
    {"hflip", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { hflip(canvas); }},
    {"vflip", 0, 0, nullptr, [](const Numbers&, Canvas& canvas) { vflip(canvas); }},
};
static_assert(sizeof(kKinds) / sizeof(kKinds[0]) == static_cast<size_t>(Operation::Kind::kCount));

const Kind& kind_of(const Operation& operation) {
  return kKinds[static_cast<size_t>(operation.kind)];
}

}  // namespace

const char* name_of(Operation::Kind kind) { return kKinds[static_cast<size_t>(kind)].name; }

Operation::Kind operation_kind(const std::string& name) {
  size_t number = 0;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return static_cast<Operation::Kind>(number);
    ++number;
  }
  throw InvalidArgument("there is no operation " + name);
}

void validate(const Operation& operation) {
  const Kind& kind = kind_of(operation);
  const Numbers& numbers = operation.numbers;
  if (numbers.size() < kind.least || numbers.size() > kind.most) {
    throw InvalidArgument(std::string(kind.name) + " takes " + std::to_string(kind.least) + " to " +
                          std::to_string(kind.most) + " numbers, not " +
                          std::to_string(numbers.size()));
  }
  for (const double number : numbers) {
    if (!std::isfinite(number)) {
      throw InvalidArgument(std::string(kind.name) + " with the number " + std::to_string(number));
    }
  }
  if (kind.check != nullptr) kind.check(numbers);
}

void apply(const Operation& operation, Canvas& canvas) {
  const Kind& kind = kind_of(operation);
  kind.apply(operation.numbers, canvas);
}

}  // namespace fastloader
