#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "image/crop.h"
#include "image/resize/resizer.h"

namespace fastloader {

/// The head of a chain, which decides what of a picture is decoded: torchvision's geometric
/// transforms in one order, random crop, resize, centre crop, flips, each of them optional. What
/// stands behind it is a Recipe.
struct ImageTransform {
  enum class Scale : uint8_t {
    kKeep,     ///< as it is
    kShorter,  ///< Resize(int): the shorter edge becomes `shorter`
    kExact,    ///< Resize((h, w)) and RandomResizedCrop: becomes `exact`
    kCover,    ///< timm's ResizeKeepRatio: the shape stays, `exact` is covered
    kFit,      ///< the same with longest=1: fits into `exact`
  };

  std::optional<CropRange> random_crop;  ///< RandomResizedCrop; then `scale` is kExact
  std::optional<CropBox> box;            ///< in place of that: the part that is used
  Scale scale = Scale::kKeep;
  size_t shorter = 0;
  std::optional<size_t> max_size;
  ImageSize exact;
  std::optional<ImageSize> center_crop;
  std::array<uint8_t, 3> fill{};  ///< what lies around a picture smaller than the centre crop: RGB
  double horizontal_flip = 0;     ///< probability
  double vertical_flip = 0;
  ResizeFilter filter = ResizeFilter::kBilinear;
  bool random_filter = false;  ///< timm's "random": bilinear or bicubic, drawn for each sample
  ResizeOrder order = ResizeOrder::kPillow13;  ///< of the Pillow that the pixels are to equal

  /// Height and width of what comes out, if every picture gives the same.
  std::optional<ImageSize> output() const;
};

/// Throws InvalidArgument for what validate(CropRange) refuses, sizes of 0 or above kMaxImageEdge,
/// a max_size that is not above `shorter`, an empty box, one beside a random crop, and
/// probabilities outside 0..1.
void validate(const ImageTransform& transform);

/// What a chain does to one picture of known size.
struct SampleGeometry {
  CropBox box;       ///< the part of the picture that is used
  ImageSize scaled;  ///< its size after the resize
  ResizeFilter filter = ResizeFilter::kBilinear;
  CenterCrop window;  ///< the part of that which is kept, and `fill` around it
  bool horizontal_flip = false;
  bool vertical_flip = false;

  /// Of what comes out.
  ImageSize made() const;
};

/// Draws the geometry of sample `index`, of which the picture is number `number`: a function of the
/// arguments only. Expects a transform that passed validate(); throws InvalidArgument for a picture
/// too thin for the resize, or that does not have all of the transform's box.
SampleGeometry draw_geometry(const ImageTransform& transform, const ImageSize& picture,
                             uint64_t seed, uint64_t index, uint32_t number = 0);

}  // namespace fastloader
