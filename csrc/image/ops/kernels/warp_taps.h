#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fastloader {

// Bilinear and bicubic mixtures of pixels of 4 bytes, the last of which is of no account. Pillow
// computes each channel in doubles; here the channels go side by side, which changes none of the
// roundings. Differences of bytes are exact in any type.

#if defined(__SSE2__)

/// A pixel's channels as doubles.
struct Mixture {
  __m128d low;
  __m128d high;
};

inline Mixture operator+(const Mixture& a, const Mixture& b) {
  return {_mm_add_pd(a.low, b.low), _mm_add_pd(a.high, b.high)};
}
inline Mixture operator-(const Mixture& a, const Mixture& b) {
  return {_mm_sub_pd(a.low, b.low), _mm_sub_pd(a.high, b.high)};
}
inline Mixture operator*(double a, const Mixture& b) {
  const __m128d factor = _mm_set1_pd(a);
  return {_mm_mul_pd(factor, b.low), _mm_mul_pd(factor, b.high)};
}

/// Two pixels' channels as integers of 16 bits.
struct Pair {
  __m128i words;
};

inline Pair operator+(const Pair& a, const Pair& b) { return {_mm_add_epi16(a.words, b.words)}; }
inline Pair operator-(const Pair& a, const Pair& b) { return {_mm_sub_epi16(a.words, b.words)}; }

/// The second pixel alone, where the first was.
inline Pair second(const Pair& pair) { return {_mm_unpackhi_epi64(pair.words, pair.words)}; }

inline Pair load_pair(const uint8_t* pixels) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels));
  return {_mm_unpacklo_epi8(bytes, _mm_setzero_si128())};
}

/// The first pixel of the two.
inline Mixture mixture(const Pair& pair) {
  const __m128i ints = _mm_srai_epi32(_mm_unpacklo_epi16(pair.words, pair.words), 16);
  return {_mm_cvtepi32_pd(ints), _mm_cvtepi32_pd(_mm_unpackhi_epi64(ints, ints))};
}

/// Truncated, from 0 to 255. Expects values that fit in 16 bits.
inline void store(const Mixture& mixture, uint8_t* to) {
  const __m128i ints =
      _mm_unpacklo_epi64(_mm_cvttpd_epi32(mixture.low), _mm_cvttpd_epi32(mixture.high));
  const __m128i words = _mm_packs_epi32(ints, ints);
  const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(to, &bytes, 2);
  to[2] = static_cast<uint8_t>(bytes >> 16);
}

#else

struct Mixture {
  double channels[3];
};

inline Mixture operator+(const Mixture& a, const Mixture& b) {
  return {{a.channels[0] + b.channels[0], a.channels[1] + b.channels[1],
           a.channels[2] + b.channels[2]}};
}
inline Mixture operator-(const Mixture& a, const Mixture& b) {
  return {{a.channels[0] - b.channels[0], a.channels[1] - b.channels[1],
           a.channels[2] - b.channels[2]}};
}
inline Mixture operator*(double a, const Mixture& b) {
  return {{a * b.channels[0], a * b.channels[1], a * b.channels[2]}};
}

struct Pair {
  int32_t channels[2][3];
};

inline Pair operator+(Pair a, const Pair& b) {
  for (int i = 0; i < 2; ++i) {
    for (int c = 0; c < 3; ++c) a.channels[i][c] += b.channels[i][c];
  }
  return a;
}
inline Pair operator-(Pair a, const Pair& b) {
  for (int i = 0; i < 2; ++i) {
    for (int c = 0; c < 3; ++c) a.channels[i][c] -= b.channels[i][c];
  }
  return a;
}

inline Pair second(const Pair& pair) {
  const int32_t (&pixel)[3] = pair.channels[1];
  return {{{pixel[0], pixel[1], pixel[2]}, {pixel[0], pixel[1], pixel[2]}}};
}

inline Pair load_pair(const uint8_t* pixels) {
  return {{{pixels[0], pixels[1], pixels[2]}, {pixels[4], pixels[5], pixels[6]}}};
}

inline Mixture mixture(const Pair& pair) {
  const int32_t (&pixel)[3] = pair.channels[0];
  return {{static_cast<double>(pixel[0]), static_cast<double>(pixel[1]),
           static_cast<double>(pixel[2])}};
}

inline void store(const Mixture& mixture, uint8_t* to) {
  for (int c = 0; c < 3; ++c) {
    const auto value = static_cast<int32_t>(mixture.channels[c]);
    to[c] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

#endif

/// Between two pixels side by side.
inline Mixture bilinear(const uint8_t* pixels, double d) {
  const Pair first = load_pair(pixels);
  return mixture(first) + d * mixture(second(first) - first);
}

inline Mixture bilinear(const Mixture& a, const Mixture& b, double d) { return a + d * (b - a); }

/// Between the second and the third of four pixels side by side.
inline Mixture bicubic(const uint8_t* pixels, double d) {
  const Pair v12 = load_pair(pixels);
  const Pair v34 = load_pair(pixels + 8);
  const Pair v2 = second(v12);
  const Pair v2_less_v1 = v2 - v12;
  const Pair v3_less_v4 = v34 - second(v34);
  const Mixture p2 = mixture(v34 - v12);
  const Mixture p3 = mixture(v3_less_v4 - v2_less_v1 - v2_less_v1);
  const Mixture p4 = mixture(v2_less_v1 - v3_less_v4);
  return mixture(v2) + d * (p2 + d * (p3 + d * p4));
}

/// Pillow's order of operations.
inline Mixture bicubic(const Mixture& v1, const Mixture& v2, const Mixture& v3, const Mixture& v4,
                       double d) {
  const Mixture p2 = v3 - v1;
  const Mixture p3 = 2.0 * (v1 - v2) + v3 - v4;
  const Mixture p4 = v2 - v1 - v3 + v4;
  return v2 + d * (p2 + d * (p3 + d * p4));
}

}  // namespace fastloader
