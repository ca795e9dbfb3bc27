#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/picture.h"
#include "random.h"

// Parts of pictures, for decoders that make parts of them.

namespace fastloader::testing {

using Bytes = std::vector<uint8_t>;

inline PictureRegion region_within(Random& random, uint32_t width, uint32_t height) {
  PictureRegion region;
  region.left = random.below(width);
  region.top = random.below(height);
  region.width = random.between(1, width - region.left);
  region.height = random.between(1, height - region.top);
  return region;
}

inline Bytes cropped(const Bytes& rgb, uint32_t width, const PictureRegion& region) {
  Bytes out;
  for (uint32_t y = region.top; y < region.top + region.height; ++y) {
    const uint8_t* row = rgb.data() + (size_t{y} * width + region.left) * 3;
    out.insert(out.end(), row, row + region.width * 3);
  }
  return out;
}

template <class Decoder>
Bytes decode(Decoder& decoder, const Bytes& file, const PictureRegion& region,
             const PictureOptions& options = {}) {
  decoder.open(file.data(), file.size(), options);
  decoder.begin(region);
  Bytes out;
  for (uint32_t y = 0; y < region.height; ++y) {
    const uint8_t* row = decoder.read_row();
    out.insert(out.end(), row, row + region.width * 3);
  }
  return out;
}

}  // namespace fastloader::testing
