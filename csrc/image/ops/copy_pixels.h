#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastloader {

// Pixels of 3 bytes that move as they are.

inline void copy_pixel(const uint8_t* from, uint8_t* to) {
  std::memcpy(to, from, 2);  // one move; a third byte has its own
  to[2] = from[2];
}

/// The same, and one byte behind the pixel changes, too: for pixels of a Canvas that are written
/// from left to right. It takes half the instructions.
inline void copy_pixel_and_more(const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 4); }

/// So many pixels that lie `step` bytes apart, which may be negative, side by side. Here, too, one
/// byte behind them changes.
inline void copy_pixels_and_more(const uint8_t* first, ptrdiff_t step, size_t count, uint8_t* to) {
  const auto from = [&](size_t i) { return first + static_cast<ptrdiff_t>(i) * step; };
  size_t i = 0;
  // Four at a time, as the time of a loop of two moves depends on where in memory it lies.
  for (; i + 4 <= count; i += 4, to += 12) {
    copy_pixel_and_more(from(i), to);
    copy_pixel_and_more(from(i + 1), to + 3);
    copy_pixel_and_more(from(i + 2), to + 6);
    copy_pixel_and_more(from(i + 3), to + 9);
  }
  for (; i < count; ++i, to += 3) copy_pixel_and_more(from(i), to);
}

/// The same for neighbours in the opposite order, from `last` backwards.
inline void copy_backwards_and_more(const uint8_t* last, size_t count, uint8_t* to) {
  copy_pixels_and_more(last, -3, count, to);
}

}  // namespace fastloader
