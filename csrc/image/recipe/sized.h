#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/ops/operation.h"
#include "image/philox.h"

namespace fastloader {

/// A step whose operations depend on the picture's size, which is known only when its turn comes.
/// fastloader/transforms/_recipe/sized.py repeats it, and a test compares the two.
enum class Sized : uint8_t {
  // A kind's place is part of what is drawn for it: another order changes every picture of a seed.
  // Resampling, mode and fill are those of Operation::Kind.
  kResizeShorter,  ///< torchvision's Resize of an int: shorter edge; most of the longer one or
                   ///< 0; resampling
  kCenterCrop,     ///< torchvision's CenterCrop: height, width
  kRandomCrop,     ///< torchvision's RandomCrop: height, width; 1 to pad if it is needed, 2 to do
                   ///< so on both axes at once, or 0; padding on the left, top, right, bottom;
                   ///< mode, fill
  kRandomResizedCrop,  ///< torchvision's: height, width, scale from, to, ratio from, to, resampling
  kAffineAbout,  ///< torchvision's F.affine, of v1: degrees, pixels to the right, down, scale,
                 ///< degrees
                 ///< of shear along x, y, resampling, fill, centre's x and y or neither
  kRandomPerspective,  ///< torchvision's: distortion, resampling, fill
  kCropOrPad,  ///< timm's CenterCropOrPad, RandomCropOrPad and RandomPad: height, width; 1 for
               ///< a place that is drawn, 0 for the middle; 1 to cut an edge that is longer, 0
               ///< to keep it; mode, fill. Draws for the height, then for the width.
  kResizeKeepRatio,  ///< timm's: height, width; how far from covering them, 0, to fitting into
                     ///< them,
                     ///< 1; a factor; 1 if that is of the area of what is then cropped, 0 if of the
                     ///< edges; the logarithm of a factor of width / height; resampling
  kBlurBetween,      ///< Pillow's blur of one radius on both axes: two radii, and the share of the
                     ///< way from the first to the second
  kAffineAboutV2,    ///< F.affine of v2, with the numbers of kAffineAbout
  kCount,
};

const char* name_of(Sized kind);
Sized sized_kind(const std::string& name);

/// Throws InvalidArgument unless the kind takes that many numbers.
void check_count(Sized kind, size_t numbers);

/// Appends the operations for a picture of that size. Expects as many numbers as the kind takes.
/// Throws InvalidArgument for numbers that the kind cannot take, or where the size does not allow
/// it.
void draw_sized(Sized kind, const std::vector<double>& numbers, const ImageSize& picture,
                Draws& draws, std::vector<Operation>& operations);

}  // namespace fastloader
