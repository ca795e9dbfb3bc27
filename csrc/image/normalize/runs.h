#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/float_round.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// The implementations on the dispatch list. Each expects a spec that passed validate().
void normalize_avx512(const NormalizeSpec& spec, const uint8_t* in, void* out);
void normalize_avx2(const NormalizeSpec& spec, const uint8_t* in, void* out);
void normalize_neon(const NormalizeSpec& spec, const uint8_t* in, void* out);
void normalize_scalar(const NormalizeSpec& spec, const uint8_t* in, void* out);

// What the vector implementations share: cutting a batch into runs. Each brings a struct with
//
//   template <FloatType kType>
//   static void affine(const uint8_t* in, size_t count, const Pattern& pattern, uint8_t* out);
//     element i of the output from byte i and the pattern's entry i % kPatternLength
//
//   template <FloatType kType, int kChannels>
//   static void split(const uint8_t* in, size_t pixels, const NormalizeSpec& spec, uint8_t* out);
//     one image, NHWC -> NCHW, 2 to 4 channels
//
//   template <int kChannels>
//   static void merge(const uint8_t* in, size_t plane, size_t pixels, uint8_t* out);
//     bytes of `pixels` pixels from planes `plane` bytes apart, interleaved

/// A multiple of every number of channels and of three vectors of 4, 8 or 16 floats, so that one
/// loop serves every number of channels.
constexpr size_t kPatternLength = 48;

struct alignas(64) Pattern {
  float scale[kPatternLength];
  float bias[kPatternLength];
};

/// Entry i is that of channel first + i % channels.
inline Pattern make_pattern(const NormalizeSpec& spec, size_t first, size_t channels) {
  Pattern pattern;
  for (size_t i = 0; i < kPatternLength; ++i) {
    pattern.scale[i] = spec.scale[first + i % channels];
    pattern.bias[i] = spec.bias[first + i % channels];
  }
  return pattern;
}

/// One element by the definition; what is left over by the vector loops goes through here.
template <FloatType kType>
inline void normalize_element(uint8_t value, float scale, float bias, uint8_t* out) {
  const auto bits = round_to<kType>(std::fma(static_cast<float>(value), scale, bias));
  std::memcpy(out, &bits, sizeof bits);
}

/// Pixels merged into a buffer on the stack at a time: small enough for the first-level cache.
constexpr size_t kMergePixels = 768;

template <class Vectors, FloatType kType, int kChannels>
void normalize_image_split(const NormalizeSpec& spec, const uint8_t* in, uint8_t* out) {
  const size_t image = spec.pixels_per_image() * kChannels;
  for (size_t n = 0; n < spec.batch; ++n) {
    Vectors::template split<kType, kChannels>(in + n * image, spec.pixels_per_image(), spec,
                                              out + n * image * bytes_per_element(kType));
  }
}

template <class Vectors, FloatType kType, int kChannels>
void normalize_image_merge(const NormalizeSpec& spec, const uint8_t* in, uint8_t* out) {
  const Pattern pattern = make_pattern(spec, 0, kChannels);
  const size_t plane = spec.pixels_per_image();
  alignas(64) uint8_t merged[kMergePixels * kChannels];
  for (size_t n = 0; n < spec.batch; ++n) {
    for (size_t first = 0; first < plane; first += kMergePixels) {
      const size_t pixels = std::min(kMergePixels, plane - first);
      const size_t start = n * plane * kChannels + first;
      Vectors::template merge<kChannels>(in + start, plane, pixels, merged);
      Vectors::template affine<kType>(
          merged, pixels * kChannels, pattern,
          out + (n * plane + first) * kChannels * bytes_per_element(kType));
    }
  }
}

template <class Vectors, FloatType kType, int kChannels>
void normalize_images(const NormalizeSpec& spec, const uint8_t* in, uint8_t* out) {
  if constexpr (kChannels > 1) {
    if (spec.in_layout == Layout::kNhwc && spec.out_layout == Layout::kNchw) {
      return normalize_image_split<Vectors, kType, kChannels>(spec, in, out);
    }
    if (spec.in_layout == Layout::kNchw && spec.out_layout == Layout::kNhwc) {
      return normalize_image_merge<Vectors, kType, kChannels>(spec, in, out);
    }
    if (spec.out_layout == Layout::kNchw) {
      const size_t plane = spec.pixels_per_image();
      Pattern patterns[static_cast<size_t>(kChannels)];
      for (size_t c = 0; c < kChannels; ++c) patterns[c] = make_pattern(spec, c, 1);
      for (size_t i = 0; i < spec.batch * kChannels; ++i) {
        Vectors::template affine<kType>(in + i * plane, plane, patterns[i % kChannels],
                                        out + i * plane * bytes_per_element(kType));
      }
      return;
    }
  }
  Vectors::template affine<kType>(in, spec.in_bytes(), make_pattern(spec, 0, kChannels), out);
}

template <class Vectors, FloatType kType>
void normalize_typed(const NormalizeSpec& spec, const uint8_t* in, uint8_t* out) {
  switch (spec.channels) {
    case 1:
      return normalize_images<Vectors, kType, 1>(spec, in, out);
    case 2:
      return normalize_images<Vectors, kType, 2>(spec, in, out);
    case 3:
      return normalize_images<Vectors, kType, 3>(spec, in, out);
    default:
      return normalize_images<Vectors, kType, 4>(spec, in, out);
  }
}

template <class Vectors>
void normalize_runs(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  uint8_t* bytes = static_cast<uint8_t*>(out);
  switch (spec.out_type) {
    case FloatType::kFloat32:
      return normalize_typed<Vectors, FloatType::kFloat32>(spec, in, bytes);
    case FloatType::kFloat16:
      return normalize_typed<Vectors, FloatType::kFloat16>(spec, in, bytes);
    case FloatType::kBFloat16:
      return normalize_typed<Vectors, FloatType::kBFloat16>(spec, in, bytes);
  }
}

}  // namespace fastloader
