#pragma once

#include <atomic>
#include <cstdint>

namespace fastloader {

/// Pillow's limit: from twice Image.MAX_IMAGE_PIXELS on it refuses a picture as a decompression
/// bomb.
constexpr uint64_t kPillowPixelLimit = 2 * uint64_t{89478485};

/// What every decoder is told.
struct PictureOptions {
  uint64_t pixel_limit = kPillowPixelLimit;  ///< a picture of more pixels is refused unseen
  /// When it becomes true, the picture is given up: after a row of blocks or a piece of the file.
  const std::atomic<bool>* stop = nullptr;
  /// Also looks for damage below the region. A picture at which Pillow's whole decode fails then
  /// always fails here, too. Costs the time of decoding the rest.
  bool check_below = false;
  /// Rows come with indices in the place of colours: the lower eight bits of each in red, the upper
  /// ones in green. They are those of a palette, or grey values as Pillow has them in modes 1, L
  /// and I;16. Only PNGs of one value a pixel have them; others throw UnsupportedImage.
  bool indices = false;
};

struct PictureSize {
  uint32_t width = 0;
  uint32_t height = 0;
};

struct PictureRegion {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

/// Throws RefusedImage, in Pillow's words, for a picture of more pixels than the limit.
void refuse_above(uint64_t pixel_limit, uint32_t width, uint32_t height);

/// Throws InvalidArgument unless the region is not empty and lies in a picture of that size.
void check_region(const PictureRegion& region, uint32_t width, uint32_t height);

/// Throws Stopped if the picture is not wanted any more.
void check_wanted(const std::atomic<bool>* stop);

}  // namespace fastloader
