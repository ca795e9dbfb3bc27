#include "image/image_transform.h"

#include <string>

#include "base/error.h"
#include "image/draw_numbers.h"

namespace fastloader {
namespace {

void check_edge(const char* what, size_t edge) {
  if (edge == 0 || edge > kMaxImageEdge) {
    throw InvalidArgument(std::string(what) + " of " + std::to_string(edge) + " pixels; 1 to " +
                          std::to_string(kMaxImageEdge) + " are allowed");
  }
}

/// The box, which the picture has to have.
CropBox checked(const CropBox& box, const ImageSize& picture) {
  if (box.left > picture.width || box.top > picture.height ||
      box.width > picture.width - box.left || box.height > picture.height - box.top) {
    throw InvalidArgument("a region of " + std::to_string(box.width) + "x" +
                          std::to_string(box.height) + " pixels at (" + std::to_string(box.left) +
                          ", " + std::to_string(box.top) + ") of a picture of " +
                          std::to_string(picture.width) + "x" + std::to_string(picture.height));
  }
  return box;
}

bool uses_exact(ImageTransform::Scale scale) {
  return scale == ImageTransform::Scale::kExact || scale == ImageTransform::Scale::kCover ||
         scale == ImageTransform::Scale::kFit;
}

void check_probability(const char* what, double probability) {
  if (!(probability >= 0 && probability <= 1)) {
    throw InvalidArgument(std::string(what) + " with probability " + std::to_string(probability) +
                          "; 0 to 1 is allowed");
  }
}

}  // namespace

std::optional<ImageSize> ImageTransform::output() const {
  if (center_crop) return center_crop;
  if (scale == Scale::kExact) return exact;
  return std::nullopt;
}

ImageSize SampleGeometry::made() const {
  return {window.pad_top + window.box.height + window.pad_bottom,
          window.pad_left + window.box.width + window.pad_right};
}

void validate(const ImageTransform& transform) {
  if (transform.random_crop) {
    validate(*transform.random_crop);
    if (transform.scale != ImageTransform::Scale::kExact) {
      throw InvalidArgument("a random resized crop needs the size that it is resized to");
    }
  }
  if (transform.box) {
    if (transform.random_crop) throw InvalidArgument("a random crop of a region");
    check_edge("a region with a height", transform.box->height);
    check_edge("a region with a width", transform.box->width);
  }
  if (transform.scale == ImageTransform::Scale::kShorter) {
    check_edge("a resize to a shorter edge", transform.shorter);
    if (transform.max_size) {
      check_edge("a resize to a longest edge", *transform.max_size);
      if (*transform.max_size <= transform.shorter) {
        throw InvalidArgument("max_size = " + std::to_string(*transform.max_size) +
                              " must be strictly greater than the size for the smaller edge, " +
                              std::to_string(transform.shorter));
      }
    }
  }
  if (uses_exact(transform.scale)) {
    check_edge("a resize to a height", transform.exact.height);
    check_edge("a resize to a width", transform.exact.width);
  }
  if (transform.center_crop) {
    check_edge("a centre crop to a height", transform.center_crop->height);
    check_edge("a centre crop to a width", transform.center_crop->width);
  }
  check_probability("a horizontal flip", transform.horizontal_flip);
  check_probability("a vertical flip", transform.vertical_flip);
}

SampleGeometry draw_geometry(const ImageTransform& transform, const ImageSize& picture,
                             uint64_t seed, uint64_t index, uint32_t number) {
  const uint32_t of_picture = number << kPictureShift;
  SampleGeometry geometry;
  geometry.box = CropBox{0, 0, picture.width, picture.height};
  if (transform.box) geometry.box = checked(*transform.box, picture);
  if (transform.random_crop) {
    Draws draws(seed, index, kDrawCrop | of_picture);
    geometry.box = random_resized_crop(picture, *transform.random_crop, draws);
  }
  const ImageSize cropped{geometry.box.height, geometry.box.width};
  switch (transform.scale) {
    case ImageTransform::Scale::kKeep:
      geometry.scaled = cropped;
      break;
    case ImageTransform::Scale::kShorter:
      geometry.scaled = resize_shorter_edge(cropped, transform.shorter, transform.max_size);
      break;
    case ImageTransform::Scale::kExact:
      geometry.scaled = transform.exact;
      break;
    case ImageTransform::Scale::kCover:
      geometry.scaled = resize_to_cover(cropped, transform.exact);
      break;
    case ImageTransform::Scale::kFit:
      geometry.scaled = resize_to_fit(cropped, transform.exact);
      break;
  }
  if (geometry.scaled.height == 0 || geometry.scaled.width == 0) {
    throw InvalidArgument("a picture of " + std::to_string(picture.width) + "x" +
                          std::to_string(picture.height) + " pixels is too thin for the resize");
  }
  geometry.window = center_crop(geometry.scaled, transform.center_crop.value_or(geometry.scaled));
  geometry.filter = transform.filter;
  if (transform.random_filter) {
    Draws draws(seed, index, kDrawInterpolation | of_picture);
    geometry.filter = draws.below(2) == 0 ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
  }
  {
    Draws draws(seed, index, kDrawHorizontalFlip | of_picture);
    geometry.horizontal_flip = random_flip(transform.horizontal_flip, draws);
  }
  {
    Draws draws(seed, index, kDrawVerticalFlip | of_picture);
    geometry.vertical_flip = random_flip(transform.vertical_flip, draws);
  }
  return geometry;
}

}  // namespace fastloader
