#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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

inline void copy_pixel(const uint8_t* from, uint8_t* to) {
  std::memcpy(to, from, 2);  // one move; a third byte has its own
  to[2] = from[2];
}

/// The same, and one byte behind the pixel changes, too: for pixels of a Canvas that are written
/// from left to right. It takes half the instructions.
inline void copy_pixel_and_more(const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 4); }

inline void fill_pixels(uint8_t* to, size_t count, const Fill& fill) {
  if (fill.grey()) {
    std::memset(to, fill.rgb[0], count * 3);
    return;
  }
  for (size_t i = 0; i < count; ++i) copy_pixel(fill.rgb, to + i * 3);
}

}  // namespace fastloader
