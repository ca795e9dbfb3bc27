#include "image/ops/enhance.h"

#include <algorithm>
#include <cstring>

#include "image/ops/blend.h"
#include "image/ops/planes.h"

namespace fastloader {
namespace {

struct GreyPlane {
  alignas(64) uint8_t grey[RgbPlanes::kPixels];
};

/// Pillow's conversion from RGB to L: ITU-R 601-2 in fixed point, rounded.
void to_grey(const RgbPlanes& planes, GreyPlane& made) {
  for (size_t i = 0; i < RgbPlanes::kPixels; ++i) {
    const uint32_t sum = uint16_t{planes.red[i]} * uint32_t{19595} +
                         uint16_t{planes.green[i]} * uint32_t{38470} +
                         uint16_t{planes.blue[i]} * uint32_t{7471} + 0x8000u;
    made.grey[i] = static_cast<uint8_t>(sum >> 16);
  }
}

void blend_plane(const GreyPlane& grey, float factor, uint8_t* plane) {
  const FloatLanes factors = FloatLanes::all(factor);
  for (size_t i = 0; i < RgbPlanes::kPixels; i += FloatLanes::kCount) {
    blend(FloatLanes::of(grey.grey + i), FloatLanes::of(plane + i), factors).to(plane + i);
  }
}

/// Blends the picture with one of which every byte is `other`.
void blend_bytes(uint8_t other, float factor, Canvas& canvas) {
  const FloatLanes others = FloatLanes::all(static_cast<float>(other));
  const FloatLanes factors = FloatLanes::all(factor);
  uint8_t* byte = canvas.pixels();
  size_t left = canvas.bytes();
  for (; left >= FloatLanes::kCount; left -= FloatLanes::kCount, byte += FloatLanes::kCount) {
    blend(others, FloatLanes::of(byte), factors).to(byte);
  }
  uint8_t rest[FloatLanes::kCount] = {};
  std::memcpy(rest, byte, left);
  blend(others, FloatLanes::of(rest), factors).to(rest);
  std::memcpy(byte, rest, left);
}

/// The mean of the picture in grey, rounded as ImageEnhance.Contrast does.
uint8_t mean_grey(Canvas& canvas) {
  uint64_t sum = 0;
  look_at_planes(canvas, [&sum](const RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    uint32_t some = 0;  // The black pixels behind the last one add nothing.
    for (const uint8_t value : grey.grey) some += value;
    sum += some;
  });
  const size_t pixels = canvas.bytes() / Canvas::kRgb;
  return static_cast<uint8_t>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
}

}  // namespace

void brightness(float factor, Canvas& canvas) { blend_bytes(0, factor, canvas); }

void contrast(float factor, Canvas& canvas) { blend_bytes(mean_grey(canvas), factor, canvas); }

void saturation(float factor, Canvas& canvas) {
  change_planes(canvas, [factor](RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    blend_plane(grey, factor, planes.red);
    blend_plane(grey, factor, planes.green);
    blend_plane(grey, factor, planes.blue);
  });
}

void grayscale(Canvas& canvas) {
  change_planes(canvas, [](RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    std::copy_n(grey.grey, RgbPlanes::kPixels, planes.red);
    std::copy_n(grey.grey, RgbPlanes::kPixels, planes.green);
    std::copy_n(grey.grey, RgbPlanes::kPixels, planes.blue);
  });
}

}  // namespace fastloader
