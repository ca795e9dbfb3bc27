#include "image/picture.h"

#include <string>

#include "base/error.h"

namespace fastloader {

void refuse_above(uint64_t pixel_limit, uint32_t width, uint32_t height) {
  const uint64_t pixels = uint64_t{width} * height;
  if (pixels <= pixel_limit) return;
  throw RefusedImage("Image size (" + std::to_string(pixels) + " pixels) exceeds limit of " +
                     std::to_string(pixel_limit) +
                     " pixels, could be decompression bomb DOS attack.");
}

void check_region(const PictureRegion& region, uint32_t width, uint32_t height) {
  if (region.width != 0 && region.height != 0 && region.left < width &&
      region.width <= width - region.left && region.top < height &&
      region.height <= height - region.top) {
    return;
  }
  throw InvalidArgument("the region " + std::to_string(region.width) + "x" +
                        std::to_string(region.height) + " at (" + std::to_string(region.left) +
                        ", " + std::to_string(region.top) + ") is not inside the picture of " +
                        std::to_string(width) + "x" + std::to_string(height));
}

void check_wanted(const std::atomic<bool>* stop) {
  // Relaxed: this thread reads nothing else that the stopping thread wrote.
  if (stop == nullptr || !stop->load(std::memory_order_relaxed)) return;
  throw Stopped("the picture is not wanted any more");
}

}  // namespace fastloader
