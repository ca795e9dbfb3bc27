#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

/// What is done to the pixels of one picture: an operation with the parameters that were drawn for
/// it. Each is a pure function of pixels and parameters. On an RGB picture it gives the bytes of
/// Pillow 13's x86-64 wheel, except where a kind's comment names something else that it follows.
/// families.h has what each of them does.
struct Operation {
  enum class Kind : uint8_t {
    // A kind's place is part of what is drawn for it: another order changes every picture of a
    // seed.
    kInvert,        ///< none
    kPosterize,     ///< bits that are kept, 0 to 8; 0 gives black, as in Pillow before 13
    kSolarize,      ///< threshold
    kSolarizeAdd,   ///< timm's: what is added, an integer; threshold, 128 if left out
    kAutocontrast,  ///< none
    kEqualize,      ///< none
    kBrightness,    ///< factor
    kContrast,      ///< factor
    kSaturation,    ///< factor
    kGrayscale,     ///< none
    kHue,           ///< torchvision's adjust_hue on Pillow's pictures: part of a turn, -0.5 to 0.5
    kSharpness,     ///< factor
    kPillowBlur,    ///< radius along x, along y
    /// torchvision's gaussian_blur, from which less than one value in a thousand differs, by 1 of
    /// 255: edge of the kernel along x, along y, odd; sigma along x and along y,
    /// or one for both, above 0
    kGaussianBlur,
    // Geometry. Resampling: 0 nearest, 2 bilinear, 3 bicubic. Fill: red, green, blue from 0 to 255,
    // for what comes from outside the picture.
    kAffine,       ///< 6 coefficients as Image.transform has them, resampling, 3 of fill
    kPerspective,  ///< 8 coefficients, resampling, 3 of fill
    kRotate,  ///< degrees, resampling, 1 to expand or 0, centre's x and y or neither, 3 of fill
    kPad,     ///< left, top, right, bottom, mode (0 constant, 1 edge, 2 reflect, 3 symmetric), fill
    kCrop,    ///< left, top, width, height; black outside
    kHflip,   ///< none
    kVflip,   ///< none
    kResize,  ///< height, width, resampling, which may also be 1 lanczos, 4 box, 5 hamming, 6
              ///< torch's
    // A mix: begin, add and blend pictures that are made of the same one, end. They depend
    // on the pictures of the mix, not on the last one only.
    kMixBegin,  ///< weight of the picture as it is, 0 to 1
    kMixAdd,    ///< weight, 0 to 1
    kMixBlend,  ///< factor
    kMixEnd,    ///< factor
    kCount,
  };

  /// What becomes of the places of the pixels. A mask of the picture goes through the same
  /// geometry, and through nothing else.
  enum class Effect : uint8_t {
    kColour,    ///< values change where they are
    kGeometry,  ///< pixels move, or are left out
    kMix,       ///< one of the four of a mix, which is no use without the others
  };

  Kind kind = Kind::kCount;
  std::vector<double> numbers;  ///< as the kind's comment says
};

/// The name that Python has for a kind, "brightness"; and the kind of a name. Throws
/// InvalidArgument for one that there is not.
const char* name_of(Operation::Kind kind);
Operation::Kind operation_kind(const std::string& name);

Operation::Effect effect_of(Operation::Kind kind);

/// kResize's resampling that takes pixel floor(i * in / out) of each edge, in float32, as torch's
/// interpolate(mode="nearest") does. Pillow's nearest takes the one nearest to the middle.
constexpr int kTorchNearest = 6;

/// How a picture follows another one of its sample, its lead.
struct Following {
  uint32_t factor = 1;            ///< how many times longer its edges are than the lead's
  std::optional<int> resampling;  ///< in place of what the lead's transform says
  /// Its values are indices, the lower eight bits of each in red and the upper ones in green. They
  /// move, and nothing else is done to them.
  bool mask = false;

  /// Whether pixels are only moved, and never made of several ones.
  bool nearest() const { return resampling == 0 || resampling == kTorchNearest; }
};

/// The operation that does to the follower what `operation` does to the lead; nothing if that is
/// nothing. Throws InvalidArgument where no operation does.
std::optional<Operation> followed(const Operation& operation, const Following& following);

/// Throws InvalidArgument unless the kind takes that many numbers.
void check_count(Operation::Kind kind, size_t numbers);

/// Throws InvalidArgument unless there is such a kind and it can take these numbers.
void validate(const Operation& operation);

/// The size of what the operation makes of a picture of this size. Expects what apply() expects and
/// throws what it throws.
ImageSize size_after(const Operation& operation, const ImageSize& size);

/// Expects an operation that passed validate(), and a picture that has pixels. Throws
/// InvalidArgument where the picture's size does not allow it, or the mix that it is of is not
/// under way, and leaves the picture as it was. Throws Stopped soon after `*stop` has become true;
/// what is on the canvas is undefined then.
void apply(const Operation& operation, Canvas& canvas, const std::atomic<bool>* stop = nullptr);

}  // namespace fastloader
