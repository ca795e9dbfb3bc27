#pragma once

// The specs as Python's ctypes fills them in, and back.

#include <cstdint>
#include <cstring>

#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"

#define FASTLOADER_EXPORT extern "C" __attribute__((visibility("default")))

namespace fastloader::testing {

struct PlainNormalizeSpec {
  uint64_t batch, height, width;
  int32_t channels, in_layout, out_layout, type;
  float scale[kMaxChannels], bias[kMaxChannels];
};

struct PlainAugmentSpec {
  PlainNormalizeSpec normalize;
  uint64_t in_batch, max_boxes;
  int32_t fill, blend;
};

inline NormalizeSpec from_plain(const PlainNormalizeSpec& plain) {
  NormalizeSpec spec;
  spec.batch = plain.batch;
  spec.height = plain.height;
  spec.width = plain.width;
  spec.channels = plain.channels;
  spec.in_layout = static_cast<Layout>(plain.in_layout);
  spec.out_layout = static_cast<Layout>(plain.out_layout);
  spec.out_type = static_cast<FloatType>(plain.type);
  std::memcpy(spec.scale, plain.scale, sizeof spec.scale);
  std::memcpy(spec.bias, plain.bias, sizeof spec.bias);
  return spec;
}

inline AugmentSpec from_plain(const PlainAugmentSpec& plain) {
  AugmentSpec spec;
  spec.normalize = from_plain(plain.normalize);
  spec.in_batch = plain.in_batch;
  spec.max_boxes = plain.max_boxes;
  spec.fill = static_cast<Fill>(plain.fill);
  spec.blend = static_cast<Blend>(plain.blend);
  return spec;
}

}  // namespace fastloader::testing
