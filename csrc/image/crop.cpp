#include "image/crop.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr int kAttempts = 10;

void check_size(const char* what, const ImageSize& size) {
  const auto fits = [](size_t edge) { return edge >= 1 && edge <= kMaxImageEdge; };
  if (fits(size.height) && fits(size.width)) return;
  throw InvalidArgument(std::string(what) + " of " + std::to_string(size.width) + " x " +
                        std::to_string(size.height) + " pixels: edges must be between 1 and " +
                        std::to_string(kMaxImageEdge));
}

void check_edge(const char* what, size_t edge) { check_size(what, {edge, edge}); }

/// Python's round(): half to even, in every rounding mode of the thread.
double round_half_even(double value) {
  const double floor = std::floor(value);
  const double rest = value - floor;
  if (rest != 0.5) return rest < 0.5 ? floor : floor + 1;
  return std::fmod(floor, 2) == 0 ? floor : floor + 1;
}

/// Python's int(a * b / c): one division, correctly rounded, then truncated.
size_t scaled(size_t a, size_t b, size_t c) {
  return static_cast<size_t>(static_cast<double>(a * b) / static_cast<double>(c));
}

/// How many times `image` is higher and wider than `target`.
std::pair<double, double> shrinkage(const ImageSize& image, const ImageSize& target) {
  check_size("resize: an image", image);
  check_size("resize: a target", target);
  return {static_cast<double>(image.height) / static_cast<double>(target.height),
          static_cast<double>(image.width) / static_cast<double>(target.width)};
}

/// Python's round(edge / times) of both edges.
ImageSize shrunk(const ImageSize& image, double times) {
  return {static_cast<size_t>(round_half_even(static_cast<double>(image.height) / times)),
          static_cast<size_t>(round_half_even(static_cast<double>(image.width) / times))};
}

CropBox central_box(const ImageSize& image, const CropRange& range) {
  const double width = static_cast<double>(image.width);
  const double height = static_cast<double>(image.height);
  const double ratio = width / height;
  size_t crop_width = image.width;
  size_t crop_height = image.height;
  if (ratio < range.min_ratio) {
    crop_height = static_cast<size_t>(round_half_even(width / range.min_ratio));
  } else if (ratio > range.max_ratio) {
    crop_width = static_cast<size_t>(round_half_even(height * range.max_ratio));
  }
  // Both have at least one pixel, and rounding cannot carry one beyond the image; a picture thinner
  // than the ratios can express would otherwise get an empty box.
  crop_width = std::clamp<size_t>(crop_width, 1, image.width);
  crop_height = std::clamp<size_t>(crop_height, 1, image.height);
  return {(image.width - crop_width) / 2, (image.height - crop_height) / 2, crop_width,
          crop_height};
}

struct CenteredEdge {
  size_t begin;
  size_t length;
  size_t pad_before;
  size_t pad_after;
};

CenteredEdge center(size_t image, size_t crop) {
  if (crop > image) return {0, image, (crop - image) / 2, (crop - image + 1) / 2};
  const double half = static_cast<double>(image - crop) / 2.0;
  return {static_cast<size_t>(round_half_even(half)), crop, 0, 0};
}

}  // namespace

void validate(const CropRange& range) {
  // Written so that NaN is refused.
  if (!(range.min_scale >= 0 && range.min_scale <= range.max_scale &&
        std::isfinite(range.max_scale))) {
    throw InvalidArgument("random crop: scale must be a range of finite numbers from 0 up");
  }
  if (!(range.min_ratio > 0 && range.min_ratio <= range.max_ratio &&
        std::isfinite(range.max_ratio))) {
    throw InvalidArgument("random crop: ratio must be a range of finite numbers above 0");
  }
}

CropBox random_resized_crop(const ImageSize& image, const CropRange& range, Draws& draws) {
  check_size("random crop: an image", image);
  const double width = static_cast<double>(image.width);
  const double height = static_cast<double>(image.height);
  const double area = width * height;
  const double min_log_ratio = std::log(range.min_ratio);
  const double max_log_ratio = std::log(range.max_ratio);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * draws.uniform(range.min_scale, range.max_scale);
    const double ratio = std::exp(draws.uniform(min_log_ratio, max_log_ratio));
    const double crop_width = round_half_even(std::sqrt(target * ratio));
    const double crop_height = round_half_even(std::sqrt(target / ratio));
    if (crop_width > 0 && crop_width <= width && crop_height > 0 && crop_height <= height) {
      CropBox box;
      box.width = static_cast<size_t>(crop_width);
      box.height = static_cast<size_t>(crop_height);
      box.top = static_cast<size_t>(draws.below(image.height - box.height + 1));
      box.left = static_cast<size_t>(draws.below(image.width - box.width + 1));
      return box;
    }
  }
  return central_box(image, range);
}

CenterCrop center_crop(const ImageSize& image, const ImageSize& crop) {
  check_size("center crop: an image", image);
  check_size("center crop: a crop", crop);
  const CenteredEdge across = center(image.width, crop.width);
  const CenteredEdge down = center(image.height, crop.height);
  CenterCrop result;
  result.box = {across.begin, down.begin, across.length, down.length};
  result.pad_left = across.pad_before;
  result.pad_right = across.pad_after;
  result.pad_top = down.pad_before;
  result.pad_bottom = down.pad_after;
  return result;
}

ImageSize resize_shorter_edge(const ImageSize& image, size_t shorter,
                              std::optional<size_t> max_size) {
  check_size("resize: an image", image);
  check_edge("resize: a shorter edge", shorter);
  if (max_size) {
    check_edge("resize: a longest edge", *max_size);
    if (*max_size <= shorter) {
      throw InvalidArgument("resize: max_size = " + std::to_string(*max_size) +
                            " must be strictly greater than the size for the smaller edge, " +
                            std::to_string(shorter));
    }
  }
  const bool portrait = image.width <= image.height;
  size_t new_short = shorter;
  size_t new_long =
      scaled(shorter, std::max(image.height, image.width), std::min(image.height, image.width));
  if (max_size && new_long > *max_size) {
    new_short = scaled(*max_size, new_short, new_long);
    new_long = *max_size;
  }
  return portrait ? ImageSize{new_long, new_short} : ImageSize{new_short, new_long};
}

ImageSize resize_to_cover(const ImageSize& image, const ImageSize& target) {
  const auto [down, across] = shrinkage(image, target);
  return shrunk(image, std::min(down, across));
}

ImageSize resize_to_fit(const ImageSize& image, const ImageSize& target) {
  const auto [down, across] = shrinkage(image, target);
  return shrunk(image, std::max(down, across));
}

}  // namespace fastloader
