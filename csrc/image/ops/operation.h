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
