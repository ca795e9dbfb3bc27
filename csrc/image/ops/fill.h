#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "image/ops/copy_pixels.h"

namespace fastloader {

/// The colour of pixels that no pixel of the picture becomes.
struct Fill {
  uint8_t rgb[3] = {0, 0, 0};

  bool grey() const { return rgb[0] == rgb[1] && rgb[1] == rgb[2]; }
};

/// A fill among the numbers of an operation: red, green and blue from `first` on. The check throws
/// InvalidArgument, which names the operation, unless they are whole numbers from 0 to 255.
void check_fill(const char* operation, const std::vector<double>& numbers, size_t first);
Fill fill_of(const std::vector<double>& numbers, size_t first);

inline void fill_pixels(uint8_t* to, size_t count, const Fill& fill) {
  if (fill.grey()) {
    std::memset(to, fill.rgb[0], count * 3);
    return;
  }
  for (size_t i = 0; i < count; ++i) copy_pixel(fill.rgb, to + i * 3);
}

}  // namespace fastloader
