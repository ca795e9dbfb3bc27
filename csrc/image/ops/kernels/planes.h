#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastloader {

/// Some pixels of a picture with their channels apart: what looks at all three channels of a pixel
/// then is a loop over neighbouring bytes, which compilers turn into vector instructions.
struct RgbPlanes {
  static constexpr size_t kPixels = 256;

  alignas(64) uint8_t red[kPixels];
  alignas(64) uint8_t green[kPixels];
  alignas(64) uint8_t blue[kPixels];
};
static_assert(sizeof(RgbPlanes) == RgbPlanes::kPixels * 3);

/// Takes kPixels pixels apart, and puts them together again.
void split(const uint8_t* rgb, RgbPlanes& planes);
void join(const RgbPlanes& planes, uint8_t* rgb);

/// Calls look(planes) for all pixels, some at a time. Behind the last pixel come black ones.
template <class Look>
void look_at_planes(const uint8_t* rgb, size_t pixels, const Look& look) {
  RgbPlanes planes;
  size_t left = pixels * 3;
  for (; left >= sizeof(planes); left -= sizeof(planes), rgb += sizeof(planes)) {
    split(rgb, planes);
    look(planes);
  }
  if (left != 0) {
    uint8_t rest[sizeof(planes)] = {};
    std::memcpy(rest, rgb, left);
    split(rest, planes);
    look(planes);
  }
}

/// The same, and the pixels become what change(planes) leaves there.
template <class Change>
void change_planes(uint8_t* rgb, size_t pixels, const Change& change) {
  size_t left = pixels * 3;
  look_at_planes(rgb, pixels, [&](RgbPlanes& planes) {
    change(planes);
    if (left >= sizeof(planes)) {
      join(planes, rgb);
    } else {
      uint8_t rest[sizeof(planes)];
      join(planes, rest);
      std::memcpy(rgb, rest, left);
    }
    const size_t done = std::min(left, sizeof(planes));
    left -= done;
    rgb += done;
  });
}

}  // namespace fastloader
