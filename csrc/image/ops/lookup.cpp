#include "image/ops/lookup.h"

namespace fastloader {

void invert(Canvas& canvas) {
  uint8_t* pixels = canvas.pixels();
  const size_t bytes = canvas.bytes();
  for (size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<uint8_t>(255 - pixels[i]);
}

}  // namespace fastloader
