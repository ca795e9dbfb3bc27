#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace fastloader {

// Needs no dispatch: what it uses, every x86-64 and every aarch64 has.

#if defined(__SSE2__)
/// Three registers that hold 48 bytes in a row; a step doubles the distance between bytes that were
/// neighbours, as a perfect shuffle of their two halves does. After four, each holds one channel.
struct SplitStep {
  __m128i first;
  __m128i second;
  __m128i third;

  SplitStep next() const {
    return {_mm_unpacklo_epi8(first, _mm_unpackhi_epi64(second, second)),
            _mm_unpacklo_epi8(_mm_unpackhi_epi64(first, first), third),
            _mm_unpacklo_epi8(second, _mm_unpackhi_epi64(third, third))};
  }
};
#endif

/// The channels of so many pixels, each by itself.
constexpr size_t kSplitPixels = 16;

inline void split_some_rgb(const uint8_t* in, uint8_t* red, uint8_t* green, uint8_t* blue) {
#if defined(__SSE2__)
  const auto* from = reinterpret_cast<const __m128i*>(in);
  const SplitStep step{_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2)};
  const SplitStep split = step.next().next().next().next();
  _mm_storeu_si128(reinterpret_cast<__m128i*>(red), split.first);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(green), split.second);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(blue), split.third);
#elif defined(__aarch64__)
  const uint8x16x3_t split = vld3q_u8(in);
  vst1q_u8(red, split.val[0]);
  vst1q_u8(green, split.val[1]);
  vst1q_u8(blue, split.val[2]);
#else
  for (size_t i = 0; i < kSplitPixels; ++i) {
    red[i] = in[i * 3];
    green[i] = in[i * 3 + 1];
    blue[i] = in[i * 3 + 2];
  }
#endif
}

/// Red, green, blue, red, ... becomes all reds, all greens, all blues: NHWC to NCHW of one picture.
inline void split_rgb(const uint8_t* in, size_t pixels, uint8_t* out) {
  uint8_t* red = out;
  uint8_t* green = out + pixels;
  uint8_t* blue = out + 2 * pixels;
  size_t i = 0;
  for (; i + kSplitPixels <= pixels; i += kSplitPixels) {
    split_some_rgb(in + i * 3, red + i, green + i, blue + i);
  }
  for (; i < pixels; ++i) {
    red[i] = in[i * 3];
    green[i] = in[i * 3 + 1];
    blue[i] = in[i * 3 + 2];
  }
}

}  // namespace fastloader
