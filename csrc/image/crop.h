#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "image/philox.h"

namespace fastloader {

// Geometry of torchvision's transforms (v1 and v2 agree) on PIL images: the same box from the same
// numbers. Where torchvision draws, we draw from Philox: the same distribution, not torch's draws.
//
// The draws of one operation come in this order. Changing it changes every crop of a seed, and
// fastloader/transforms/_recipe/sized.py repeats it in Python; a test compares the two.
//   random_resized_crop   for each attempt: area, log of the ratio; once it fits: top, left
//   random_flip           one

struct ImageSize {
  size_t height = 0;
  size_t width = 0;

  bool operator==(const ImageSize& other) const {
    return height == other.height && width == other.width;
  }
};

/// Largest height or width taken here; products of two are then exact in double.
constexpr size_t kMaxImageEdge = size_t{1} << 24;

struct CropBox {
  size_t left = 0;
  size_t top = 0;
  size_t width = 0;
  size_t height = 0;

  bool operator==(const CropBox& other) const {
    return left == other.left && top == other.top && width == other.width && height == other.height;
  }
};

struct CropRange {
  double min_scale = 0.08;  // of the image's area
  double max_scale = 1.0;
  double min_ratio = 3.0 / 4.0;  // width / height
  double max_ratio = 4.0 / 3.0;
};

/// Throws InvalidArgument unless the numbers are finite, scales not negative, ratios positive, and
/// no minimum exceeds its maximum (torch cannot draw from such a range either).
void validate(const CropRange& range);

/// RandomResizedCrop.get_params: ten attempts, then the largest central box whose ratio is allowed.
/// Expects a range that passed validate(); throws InvalidArgument for an image without pixels.
CropBox random_resized_crop(const ImageSize& image, const CropRange& range, Draws& draws);

/// True with the given probability; never for 0, always for 1.
inline bool random_flip(double probability, Draws& draws) { return draws.uniform() < probability; }

/// CenterCrop. A crop that is larger than the image has a border, which ImageTransform::fill fills.
struct CenterCrop {
  CropBox box;          // the part of the image that is seen
  size_t pad_left = 0;  // the border: with the box it makes up the crop
  size_t pad_top = 0;
  size_t pad_right = 0;
  size_t pad_bottom = 0;

  bool padded() const { return pad_left + pad_top + pad_right + pad_bottom != 0; }
};

/// Throws InvalidArgument when either has no pixels.
CenterCrop center_crop(const ImageSize& image, const ImageSize& crop);

/// Resize(shorter, max_size): the shorter edge becomes `shorter`, the longer one follows,
/// truncated; where it would exceed `max_size`, it becomes that and the shorter one follows.
/// (Resize of a pair is that pair.) An edge of the result is 0 for images so thin that Pillow would
/// refuse, too. Throws InvalidArgument when max_size <= shorter, or for an image without pixels.
ImageSize resize_shorter_edge(const ImageSize& image, size_t shorter,
                              std::optional<size_t> max_size = std::nullopt);

/// timm's ResizeKeepRatio, longest=0: the smallest size of the image's shape that covers `target`,
/// each edge rounded half to even. An edge may come out as 0.
ImageSize resize_to_cover(const ImageSize& image, const ImageSize& target);

/// The same with longest=1: the largest size that fits into `target`.
ImageSize resize_to_fit(const ImageSize& image, const ImageSize& target);

}  // namespace fastloader
