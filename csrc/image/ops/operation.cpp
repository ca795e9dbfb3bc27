#include "image/ops/operation.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "image/ops/checks.h"
#include "image/ops/families.h"

namespace fastloader {
namespace {

using Numbers = std::vector<double>;
using Effect = Operation::Effect;

/// A kind as it is written down here once: its name, what it changes, how many numbers it takes,
/// what it does.
struct Kind {
  const char* name;
  Effect effect;
  size_t least;
  size_t most;
  void (*check)(const Numbers& numbers);  // beyond their count; may be null
  void (*apply)(const Numbers& numbers, Canvas& canvas);
  // Also throws where that size does not allow the operation; null for a size that always stays.
  ImageSize (*size_after)(const Numbers& numbers, const ImageSize& size) = nullptr;
  // What becomes of each number for a follower, if some change: '*' lengths grow with it, '/'
  // shares of a length shrink, 'r' is the resampling, 'f' one of three of the fill, '?' a length
  // that may be left out, '.' stays.
  const char* following = nullptr;
};

template <void (*kApply)(float factor, Canvas& canvas)>
void by_factor(const Numbers& numbers, Canvas& canvas) {
  kApply(static_cast<float>(numbers[0]), canvas);
}

/// Pillow blends in float, in which a number may be too large to be finite.
template <const char* kName>
void check_factor(const Numbers& numbers) {
  constexpr double kMost = static_cast<double>(std::numeric_limits<float>::max());
  check_number(kName, "factor", numbers[0], -kMost, kMost);
}

void check_posterize(const Numbers& numbers) { check_whole("posterize", "bits", numbers[0], 0, 8); }

void check_solarize_add(const Numbers& numbers) {
  constexpr double kMost = std::numeric_limits<int>::max();
  check_whole("solarize_add", "what is added", numbers[0], -kMost, kMost);
}

void check_hue(const Numbers& numbers) {
  check_number("hue", "part of a turn", numbers[0], -0.5, 0.5);
}

void check_pillow_blur(const Numbers& numbers) {
  for (const double radius : numbers) {
    check_number("pillow_blur", "radius", radius, -kMaxPillowBlur, kMaxPillowBlur);
  }
}

struct GaussianNumbers {
  size_t kernel_x;
  size_t kernel_y;
  double sigma_x;
  double sigma_y;

  explicit GaussianNumbers(const Numbers& numbers)
      : kernel_x(static_cast<size_t>(numbers[0])),
        kernel_y(static_cast<size_t>(numbers[1])),
        sigma_x(numbers[2]),
        sigma_y(numbers.back()) {}
};

void check_gaussian_blur(const Numbers& numbers) {
  for (const double edge : {numbers[0], numbers[1]}) {
    check_whole("gaussian_blur", "kernel", edge, 1, static_cast<double>(kMaxGaussianKernel));
    if (std::fmod(edge, 2.0) == 0) {
      throw InvalidArgument("gaussian_blur: kernel must be odd, not " +
                            std::to_string(static_cast<size_t>(edge)));
    }
  }
  for (const double sigma : {numbers[2], numbers.back()}) {
    if (!(sigma > 0)) throw InvalidArgument("gaussian_blur: sigma must be above 0");
  }
}

ImageSize size_after_gaussian_blur(const Numbers& numbers, const ImageSize& size) {
  const GaussianNumbers named(numbers);
  require_mirror(named.kernel_x, named.kernel_y, size);
  return size;
}

constexpr char kBrightness[] = "brightness";
constexpr char kContrast[] = "contrast";
constexpr char kSaturation[] = "saturation";
constexpr char kSharpness[] = "sharpness";
constexpr char kMixBegin[] = "mix_begin";
constexpr char kMixAdd[] = "mix_add";
constexpr char kMixBlend[] = "mix_blend";
constexpr char kMixEnd[] = "mix_end";

/// Within what keeps the sum of a mix finite.
template <const char* kName>
void check_weight(const Numbers& numbers) {
  check_number(kName, "weight", numbers[0], 0, 1);
}

// In the order of Operation::Kind.
const Kind kKinds[] = {
    {"invert", Effect::kColour, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { invert(canvas); }},
    {"posterize", Effect::kColour, 1, 1, check_posterize,
     [](const Numbers& numbers, Canvas& canvas) {
       posterize(static_cast<int>(numbers[0]), canvas);
     }},
    {"solarize", Effect::kColour, 1, 1, nullptr,
     [](const Numbers& numbers, Canvas& canvas) { solarize(numbers[0], canvas); }},
    {"solarize_add", Effect::kColour, 1, 2, check_solarize_add,
     [](const Numbers& numbers, Canvas& canvas) {
       solarize_add(static_cast<int>(numbers[0]), numbers.size() > 1 ? numbers[1] : 128, canvas);
     }},
    {"autocontrast", Effect::kColour, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { autocontrast(canvas); }},
    {"equalize", Effect::kColour, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { equalize(canvas); }},
    {kBrightness, Effect::kColour, 1, 1, check_factor<kBrightness>, by_factor<brightness>},
    {kContrast, Effect::kColour, 1, 1, check_factor<kContrast>, by_factor<contrast>},
    {kSaturation, Effect::kColour, 1, 1, check_factor<kSaturation>, by_factor<saturation>},
    {"grayscale", Effect::kColour, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { grayscale(canvas); }},
    {"hue", Effect::kColour, 1, 1, check_hue,
     [](const Numbers& numbers, Canvas& canvas) { hue(numbers[0], canvas); }},
    {kSharpness, Effect::kColour, 1, 1, check_factor<kSharpness>, by_factor<sharpness>},
    {"pillow_blur", Effect::kColour, 2, 2, check_pillow_blur,
     [](const Numbers& numbers, Canvas& canvas) { pillow_blur(numbers[0], numbers[1], canvas); }},
    {"gaussian_blur", Effect::kColour, 3, 4, check_gaussian_blur,
     [](const Numbers& numbers, Canvas& canvas) {
       const GaussianNumbers named(numbers);
       gaussian_blur(named.kernel_x, named.kernel_y, named.sigma_x, named.sigma_y, canvas);
     },
     size_after_gaussian_blur},
    {"affine", Effect::kGeometry, 10, 10, check_affine, affine, nullptr, "..*..*rfff"},
    {"perspective", Effect::kGeometry, 12, 12, check_perspective, perspective, nullptr,
     "..*..*//rfff"},
    {"rotate", Effect::kGeometry, 6, 8, check_rotate, rotate, rotated_size,
     ".r.?"  // in two pieces, which make no trigraph
     "?fff"},
    {"pad", Effect::kGeometry, 8, 8, check_pad, pad, padded_size, "****.fff"},
    {"crop", Effect::kGeometry, 4, 4, check_crop, crop,
     [](const Numbers& numbers, const ImageSize&) { return cropped_size(numbers); }, "****"},
    {"hflip", Effect::kGeometry, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { hflip(canvas); }},
    {"vflip", Effect::kGeometry, 0, 0, nullptr,
     [](const Numbers&, Canvas& canvas) { vflip(canvas); }},
    {"resize", Effect::kGeometry, 3, 3, check_resize, resize,
     [](const Numbers& numbers, const ImageSize&) { return resized_size(numbers); }, "**r"},
    {kMixBegin, Effect::kMix, 1, 1, check_weight<kMixBegin>, by_factor<mix_begin>},
    {kMixAdd, Effect::kMix, 1, 1, check_weight<kMixAdd>, by_factor<mix_add>},
    {kMixBlend, Effect::kMix, 1, 1, check_factor<kMixBlend>, by_factor<mix_blend>},
    {kMixEnd, Effect::kMix, 1, 1, check_factor<kMixEnd>, by_factor<mix_end>},
};
static_assert(sizeof(kKinds) / sizeof(kKinds[0]) == static_cast<size_t>(Operation::Kind::kCount));

const Kind& kind_of(Operation::Kind kind) {
  if (kind >= Operation::Kind::kCount) {
    throw InvalidArgument("there is no operation of kind " +
                          std::to_string(static_cast<int>(kind)));
  }
  return kKinds[static_cast<size_t>(kind)];
}

/// A canvas with a stop flag, as long as an operation lasts.
class Stoppable {
 public:
  Stoppable(Canvas& canvas, const std::atomic<bool>* stop) : canvas_(canvas) {
    canvas.set_stop(stop);
  }
  ~Stoppable() { canvas_.set_stop(nullptr); }
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

 private:
  Canvas& canvas_;
};

std::string text_of_count(const Kind& kind) {
  const std::string least = std::to_string(kind.least);
  return kind.least == kind.most ? least : least + " to " + std::to_string(kind.most);
}

}  // namespace

const char* name_of(Operation::Kind kind) { return kind_of(kind).name; }

Operation::Kind operation_kind(const std::string& name) {
  size_t number = 0;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return static_cast<Operation::Kind>(number);
    ++number;
  }
  throw InvalidArgument("there is no operation " + name);
}

Operation::Effect effect_of(Operation::Kind kind) { return kind_of(kind).effect; }

std::optional<Operation> followed(const Operation& operation, const Following& following) {
  const Kind& kind = kind_of(operation.kind);
  if (following.mask) {
    if (kind.effect == Effect::kColour) return std::nullopt;
    const Operation::Kind warps[] = {Operation::Kind::kAffine, Operation::Kind::kPerspective,
                                     Operation::Kind::kRotate};
    for (const Operation::Kind warp : warps) {
      // torchvision warps masks by grid_sample, whose places are others.
      if (operation.kind == warp) throw InvalidArgument(std::string(kind.name) + " of a mask");
    }
    if (kind.effect == Effect::kMix) throw InvalidArgument("a mix of masks");
  }
  Operation made = operation;
  if (kind.following == nullptr) return made;
  if (operation.kind == Operation::Kind::kRotate && following.factor != 1 && made.numbers[2] != 0) {
    throw InvalidArgument("rotate with expand=True of a picture beside one of another size");
  }
  const double factor = following.factor;
  const bool complete = made.numbers.size() == kind.most;
  size_t at = 0;
  size_t fills = 0;
  for (const char* what = kind.following; *what != '\0'; ++what) {
    if (*what == '?' && !complete) continue;
    double& number = made.numbers[at++];
    if (*what == '*' || *what == '?') number *= factor;
    if (*what == '/') number /= factor;
    if (*what == 'r') number = following.resampling.value_or(static_cast<int>(number));
    // The upper bits of an index are in green.
    if (*what == 'f' && fills++ > 0 && following.mask) number = 0;
  }
  return made;
}

void check_count(Operation::Kind kind, size_t numbers) {
  const Kind& known = kind_of(kind);
  if (numbers >= known.least && numbers <= known.most) return;
  throw InvalidArgument(std::string(known.name) + " takes " + text_of_count(known) +
                        " numbers, not " + std::to_string(numbers));
}

void validate(const Operation& operation) {
  const Kind& kind = kind_of(operation.kind);
  const Numbers& numbers = operation.numbers;
  check_count(operation.kind, numbers.size());
  for (const double number : numbers) {
    if (!std::isfinite(number)) {
      throw InvalidArgument(std::string(kind.name) + " with the number " + std::to_string(number));
    }
  }
  if (kind.check != nullptr) kind.check(numbers);
}

ImageSize size_after(const Operation& operation, const ImageSize& size) {
  const Kind& kind = kind_of(operation.kind);
  return kind.size_after == nullptr ? size : kind.size_after(operation.numbers, size);
}

void apply(const Operation& operation, Canvas& canvas, const std::atomic<bool>* stop) {
  const Stoppable until_the_end(canvas, stop);
  canvas.throw_if_stopped();
  kind_of(operation.kind).apply(operation.numbers, canvas);
}

}  // namespace fastloader
