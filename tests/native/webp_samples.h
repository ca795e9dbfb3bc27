#pragma once

#include <webp/decode.h>
#include <webp/encode.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "random.h"

// WebPs made in memory, and libwebp's whole decode of them in one call.

namespace fastloader::testing {

using Bytes = std::vector<uint8_t>;

struct WebpSample {
  uint32_t width = 0;
  uint32_t height = 0;
  Bytes file;
};

inline WebpSample random_webp(Random& random) {
  WebpSample made;
  made.width = random.between(1, 90);
  made.height = random.between(1, 90);
  const bool alpha = random.chance(40);
  Bytes pixels(size_t{made.width} * made.height * 4);
  const uint32_t noise = random.between(1, 60);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>((i % 4) * 60 + i / made.width % 70 + random.below(noise));
    if (i % 4 == 3 && !alpha) pixels[i] = 255;
  }
  const int width = static_cast<int>(made.width);
  const int height = static_cast<int>(made.height);
  uint8_t* out = nullptr;
  const size_t size = random.chance(40)
                          ? WebPEncodeLosslessRGBA(pixels.data(), width, height, 4 * width, &out)
                          : WebPEncodeRGBA(pixels.data(), width, height, 4 * width,
                                           static_cast<float>(random.between(0, 100)), &out);
  if (size == 0) std::abort();
  made.file.assign(out, out + size);
  WebPFree(out);
  return made;
}

/// Empty: libwebp fails.
inline Bytes plain_pixels(const Bytes& file, uint32_t width, uint32_t height) {
  Bytes rgb(size_t{width} * height * 3);
  const uint8_t* made = WebPDecodeRGBInto(file.data(), file.size(), rgb.data(), rgb.size(),
                                          static_cast<int>(width * 3));
  return made == nullptr ? Bytes() : rgb;
}

}  // namespace fastloader::testing
