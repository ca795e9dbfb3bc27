#include "image/ops/kernels/box.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fastloader {
namespace {

/// Any box on any machine. Sums wrap where Pillow's do.
void wide_box_pass(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
  uint32_t sums[kBoxLine] = {};
  sum_before_first(lines, box, [&](size_t line, uint32_t times) {
    const uint8_t* from = in + line * kBoxLine;
    for (size_t i = 0; i < kBoxLine; ++i) sums[i] += from[i] * times;
  });
  for (size_t line = 0; line < lines; ++line) {
    const Ends ends = ends_at(line, lines - 1, box);
    const uint8_t* leaves = in + ends.leaves * kBoxLine;
    const uint8_t* enters = in + ends.enters * kBoxLine;
    const uint8_t* beyond = in + ends.beyond * kBoxLine;
    uint8_t* to = out + line * kBoxLine;
    for (size_t i = 0; i < kBoxLine; ++i) {
      sums[i] += static_cast<uint32_t>(enters[i]) - leaves[i];
      const uint32_t parts = static_cast<uint32_t>(leaves[i]) + beyond[i];
      to[i] = static_cast<uint8_t>((sums[i] * box.whole + parts * box.part + (1u << 23)) >> 24);
    }
  }
}

#if defined(__SSE2__)

constexpr size_t kLanes = 16;

struct Weights {
  __m128i high;
  __m128i low;

  explicit Weights(const Box& box)
      : high(pairs(box.whole >> 12, box.part >> 12)),
        low(pairs(box.whole & 4095, box.part & 4095)) {}

 private:
  static __m128i pairs(uint32_t whole, uint32_t part) {
    return _mm_set1_epi32(static_cast<int>(whole | part << 16));
  }
};

/// Four values of pairs (sum, parts).
__m128i weigh(__m128i pairs, const Weights& weights) {
  const __m128i high = _mm_slli_epi32(_mm_madd_epi16(pairs, weights.high), 12);
  const __m128i low = _mm_add_epi32(_mm_madd_epi16(pairs, weights.low), _mm_set1_epi32(1 << 23));
  return _mm_srli_epi32(_mm_add_epi32(high, low), 24);
}

/// Eight values.
__m128i weigh(__m128i sums, __m128i parts, const Weights& weights) {
  return _mm_packs_epi32(weigh(_mm_unpacklo_epi16(sums, parts), weights),
                         weigh(_mm_unpackhi_epi16(sums, parts), weights));
}

/// 16 bytes as two times eight numbers.
struct Lanes {
  __m128i first;
  __m128i second;

  static Lanes load(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i zero = _mm_setzero_si128();
    return {_mm_unpacklo_epi8(bytes, zero), _mm_unpackhi_epi8(bytes, zero)};
  }
  Lanes operator+(const Lanes& other) const {
    return {_mm_add_epi16(first, other.first), _mm_add_epi16(second, other.second)};
  }
  Lanes operator-(const Lanes& other) const {
    return {_mm_sub_epi16(first, other.first), _mm_sub_epi16(second, other.second)};
  }
};

/// What wide_box_pass() does, for radii up to kMaxNarrowRadius.
void narrow_box_pass(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
  const Weights weights(box);
  for (size_t lane = 0; lane < kBoxLine; lane += kLanes) {
    const uint8_t* from = in + lane;
    uint8_t* to = out + lane;
    Lanes sums = {_mm_setzero_si128(), _mm_setzero_si128()};
    sum_before_first(lines, box, [&](size_t line, uint32_t times) {
      const __m128i factor = _mm_set1_epi16(static_cast<int16_t>(times));
      const Lanes added = Lanes::load(from + line * kBoxLine);
      sums =
          sums + Lanes{_mm_mullo_epi16(added.first, factor), _mm_mullo_epi16(added.second, factor)};
    });
    Lanes enters = Lanes::load(from + ends_at(0, lines - 1, box).enters * kBoxLine);
    for (size_t line = 0; line < lines; ++line) {
      const Ends ends = ends_at(line, lines - 1, box);
      const Lanes leaves = Lanes::load(from + ends.leaves * kBoxLine);
      const Lanes beyond = Lanes::load(from + ends.beyond * kBoxLine);
      sums = sums + enters - leaves;
      const Lanes parts = leaves + beyond;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + line * kBoxLine),
                       _mm_packus_epi16(weigh(sums.first, parts.first, weights),
                                        weigh(sums.second, parts.second, weights)));
      enters = beyond;  // of the next line
    }
  }
}

#endif

}  // namespace

void box_pass_scalar(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
#if defined(__SSE2__)
  if (box.radius <= kMaxNarrowRadius) return narrow_box_pass(in, lines, box, out);
#endif
  wide_box_pass(in, lines, box, out);
}

}  // namespace fastloader
