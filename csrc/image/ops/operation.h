#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

/// What is done to the pixels of one picture: an operation with the parameters that were drawn for
/// it. Each is a pure function of pixels and parameters with the result of Pillow 13's x86-64
/// wheel, bit for bit, on an RGB picture. The families are the files beside this one.
struct Operation {
  enum class Kind : uint8_t {
    // A kind's place is part of what is drawn for it: another order changes every picture of a
    // seed.
    kInvert,        ///< none
    kPosterize,     ///< bits that are kept, 0 to 8
    kSolarize,      ///< threshold
    kSolarizeAdd,   ///< what is added, an integer; threshold, 128 if left out
    kAutocontrast,  ///< none
    kEqualize,      ///< none
    kBrightness,    ///< factor
    kContrast,      ///< factor
    kSaturation,    ///< factor
    kGrayscale,     ///< none
    kHue,           ///< part of a turn, -0.5 to 0.5
    kSharpness,     ///< factor
    kPillowBlur,    ///< radius along x, along y
    kGaussianBlur,  ///< edge of the kernel along x, along y; sigma along x, along y
    // Geometry. Resampling: 0 nearest, 2 bilinear, 3 bicubic. Fill: red, green, blue from 0 to 255,
    // for what comes from outside the picture.
    kAffine,       ///< 6 coefficients as Image.transform has them, resampling, 3 of fill
    kPerspective,  ///< 8 coefficients, resampling, 3 of fill
    kRotate,  ///< degrees, resampling, 1 to expand or 0, centre's x and y or neither, 3 of fill
    kPad,     ///< left, top, right, bottom, mode (0 constant, 1 edge, 2 reflect, 3 symmetric), fill
    kCrop,    ///< left, top, width, height; black outside
    kHflip,   ///< none
    kVflip,   ///< none
    kCount,
  };

  Kind kind = Kind::kCount;
  std::vector<double> numbers;  ///< as the kind's comment says
};

/// The name that Python has for a kind, "brightness"; and the kind of a name. Throws
/// InvalidArgument for one that there is not.
const char* name_of(Operation::Kind kind);
Operation::Kind operation_kind(const std::string& name);

/// Throws InvalidArgument unless the kind can take these numbers.
void validate(const Operation& operation);

/// Expects an operation that passed validate(). Throws InvalidArgument where the picture's size
/// does not allow it.
void apply(const Operation& operation, Canvas& canvas);

}  // namespace fastloader
