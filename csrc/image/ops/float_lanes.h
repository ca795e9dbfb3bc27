#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fastloader {

/// 16 bytes as floats. Each operator rounds once, as one of float does, so that what comes out is
/// the same however it is compiled. With SSE2 by hand, since compilers turn a clipped conversion to
/// bytes into many more instructions than it takes.
struct FloatLanes {
  static constexpr size_t kCount = 16;

  using Part = float __attribute__((vector_size(16)));  // Which is __m128 where there is SSE.

  Part part[4];

  static FloatLanes of(const uint8_t* bytes) {
#if defined(__SSE2__)
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    const __m128i zero = _mm_setzero_si128();
    const __m128i low = _mm_unpacklo_epi8(all, zero);
    const __m128i high = _mm_unpackhi_epi8(all, zero);
    return {{_mm_cvtepi32_ps(_mm_unpacklo_epi16(low, zero)),
             _mm_cvtepi32_ps(_mm_unpackhi_epi16(low, zero)),
             _mm_cvtepi32_ps(_mm_unpacklo_epi16(high, zero)),
             _mm_cvtepi32_ps(_mm_unpackhi_epi16(high, zero))}};
#else
    FloatLanes made;
    for (size_t i = 0; i < kCount; ++i) made.part[i / 4][i % 4] = static_cast<float>(bytes[i]);
    return made;
#endif
  }

  static FloatLanes all(float value) {
    const Part each{value, value, value, value};
    return {{each, each, each, each}};
  }

  /// Clipped to 0 and 255, then cut off to integers. Takes any number, also an infinite one, but no
  /// NaN.
  void to(uint8_t* bytes) const {
#if defined(__SSE2__)
    // The highest numbers are clipped before they are integers: too large ones become the lowest
    // integer, as too low ones do, which is clipped to 0 with the other negative ones.
    const __m128 most = _mm_set1_ps(255.0f);
    const auto integers = [&](size_t i) { return _mm_cvttps_epi32(_mm_min_ps(part[i], most)); };
    const __m128i low = _mm_packs_epi32(integers(0), integers(1));
    const __m128i high = _mm_packs_epi32(integers(2), integers(3));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(low, high));
#else
    for (size_t i = 0; i < kCount; ++i) {
      const float number = part[i / 4][i % 4];
      const float at_least_0 = number > 0.0f ? number : 0.0f;
      bytes[i] = static_cast<uint8_t>(static_cast<int>(at_least_0 < 255.0f ? at_least_0 : 255.0f));
    }
#endif
  }

  /// 1 more where it is negative.
  FloatLanes with_negatives_raised() const {
    return {{raised(part[0]), raised(part[1]), raised(part[2]), raised(part[3])}};
  }

 private:
  static Part raised(const Part& numbers) {
    const Part zero{};
    const Part one{1.0f, 1.0f, 1.0f, 1.0f};
    return numbers + (numbers < zero ? one : zero);
  }
};

// Written out, since some compilers leave a loop over the parts a loop.

inline FloatLanes operator+(const FloatLanes& a, const FloatLanes& b) {
  return {
      {a.part[0] + b.part[0], a.part[1] + b.part[1], a.part[2] + b.part[2], a.part[3] + b.part[3]}};
}
inline FloatLanes operator-(const FloatLanes& a, const FloatLanes& b) {
  return {
      {a.part[0] - b.part[0], a.part[1] - b.part[1], a.part[2] - b.part[2], a.part[3] - b.part[3]}};
}
inline FloatLanes operator*(const FloatLanes& a, const FloatLanes& b) {
  return {
      {a.part[0] * b.part[0], a.part[1] * b.part[1], a.part[2] * b.part[2], a.part[3] * b.part[3]}};
}
inline FloatLanes operator/(const FloatLanes& a, const FloatLanes& b) {
  return {
      {a.part[0] / b.part[0], a.part[1] / b.part[1], a.part[2] / b.part[2], a.part[3] / b.part[3]}};
}

}  // namespace fastloader
