#include "image/ops/pillow_blur.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fastloader {
namespace {

// Both axes are blurred by the same loops, which go along *lines* of 48 bytes and blur each byte
// with those at the same place of the other lines. For the vertical axis a line is 16 pixels of a
// row. For the horizontal axis it is one pixel of 16 rows, which is a transpose in pieces that
// never leave the nearest cache: no picture of turned pixels is written.

constexpr size_t kLanes = 16;
constexpr size_t kLine = kLanes * Canvas::kRgb;

constexpr size_t kPasses = 3;

/// A box of 2 * radius + 1 whole pixels and a part of one on either side, in fixed point: a weight
/// of 1 is 1 << 24. What is beyond the edge counts as the pixel at the edge.
struct Box {
  uint32_t radius = 0;
  uint32_t whole = 0;
  uint32_t part = 0;
};

/// Pillow's float arithmetic, step by step, since each rounding shows in the weights.
float box_radius(float radius) {
  const float variance = radius * radius / static_cast<float>(kPasses);
  const auto length = static_cast<float>(std::sqrt(12.0 * static_cast<double>(variance) + 1.0));
  const auto whole = static_cast<float>(std::floor((static_cast<double>(length) - 1.0) / 2.0));
  float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
  part /= 6 * (variance - (whole + 1) * (whole + 1));
  return whole + part;
}

Box box_of(float radius) {
  Box box;
  box.radius = static_cast<uint32_t>(radius);
  box.whole = static_cast<uint32_t>(16777216.0f / (radius * 2 + 1));
  box.part = ((uint32_t{1} << 24) - (box.radius * 2 + 1) * box.whole) / 2;
  return box;
}

/// Where the lines lie that enter and leave the sum of the box as it moves on to a line.
struct Ends {
  size_t leaves;  // and is the one of which a part remains on the left
  size_t enters;
  size_t beyond;  // the part on the right
};

Ends ends_at(size_t line, size_t last, const Box& box) {
  return {line > box.radius ? line - box.radius - 1 : 0, std::min(line + box.radius, last),
          std::min(line + box.radius + 1, last)};
}

/// The sum of the box before the first line, without the parts: radius + 1 times the first line,
/// and the `radius` lines from the first on. Adds a line so many times.
template <class Add>
void sum_before_first(size_t lines, const Box& box, const Add& add) {
  add(0, box.radius + 1);
  const size_t inside = std::min<size_t>(box.radius, lines - 1);
  for (size_t line = 0; line < inside; ++line) add(line, 1);
  add(lines - 1, box.radius - static_cast<uint32_t>(inside));
}

/// Any box on any machine. Sums wrap where Pillow's do.
void box_pass(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
  uint32_t sums[kLine] = {};
  sum_before_first(lines, box, [&](size_t line, uint32_t times) {
    const uint8_t* from = in + line * kLine;
    for (size_t i = 0; i < kLine; ++i) sums[i] += from[i] * times;
  });
  for (size_t line = 0; line < lines; ++line) {
    const Ends ends = ends_at(line, lines - 1, box);
    const uint8_t* leaves = in + ends.leaves * kLine;
    const uint8_t* enters = in + ends.enters * kLine;
    const uint8_t* beyond = in + ends.beyond * kLine;
    uint8_t* to = out + line * kLine;
    for (size_t i = 0; i < kLine; ++i) {
      sums[i] += static_cast<uint32_t>(enters[i]) - leaves[i];
      const uint32_t parts = static_cast<uint32_t>(leaves[i]) + beyond[i];
      to[i] = static_cast<uint8_t>((sums[i] * box.whole + parts * box.part + (1u << 23)) >> 24);
    }
  }
}

#if defined(__SSE2__)

/// Up to this radius a sum fits the 15 bits that the multiplier takes. The weights, which have 24
/// bits, go in halves of 12.
constexpr uint32_t kMaxNarrowRadius = 63;

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

/// What box_pass() does, for radii up to kMaxNarrowRadius.
void narrow_box_pass(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
  const Weights weights(box);
  for (size_t lane = 0; lane < kLine; lane += kLanes) {
    const uint8_t* from = in + lane;
    uint8_t* to = out + lane;
    Lanes sums = {_mm_setzero_si128(), _mm_setzero_si128()};
    sum_before_first(lines, box, [&](size_t line, uint32_t times) {
      const __m128i factor = _mm_set1_epi16(static_cast<int16_t>(times));
      const Lanes added = Lanes::load(from + line * kLine);
      sums =
          sums + Lanes{_mm_mullo_epi16(added.first, factor), _mm_mullo_epi16(added.second, factor)};
    });
    Lanes enters = Lanes::load(from + ends_at(0, lines - 1, box).enters * kLine);
    for (size_t line = 0; line < lines; ++line) {
      const Ends ends = ends_at(line, lines - 1, box);
      const Lanes leaves = Lanes::load(from + ends.leaves * kLine);
      const Lanes beyond = Lanes::load(from + ends.beyond * kLine);
      sums = sums + enters - leaves;
      const Lanes parts = leaves + beyond;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + line * kLine),
                       _mm_packus_epi16(weigh(sums.first, parts.first, weights),
                                        weigh(sums.second, parts.second, weights)));
      enters = beyond;  // of the next line
    }
  }
}

/// The bytes of both halves of all rows take turns, as in a perfect shuffle of cards.
template <size_t... kIndex>
void interleave(const __m128i* rows, __m128i* out, std::index_sequence<kIndex...>) {
  constexpr size_t kHalf = sizeof...(kIndex);
  ((out[2 * kIndex] = _mm_unpacklo_epi8(rows[kIndex], rows[kIndex + kHalf])), ...);
  ((out[2 * kIndex + 1] = _mm_unpackhi_epi8(rows[kIndex], rows[kIndex + kHalf])), ...);
}

template <size_t... kIndex>
void transpose(const uint8_t* const* rows, uint8_t* const* out, std::index_sequence<kIndex...>) {
  __m128i even[] = {_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[kIndex]))...};
  __m128i odd[kLanes];
  const std::make_index_sequence<kLanes / 2> half;
  interleave(even, odd, half);
  interleave(odd, even, half);
  interleave(even, odd, half);
  interleave(odd, even, half);
  (_mm_storeu_si128(reinterpret_cast<__m128i*>(out[kIndex]), even[kIndex]), ...);
}

/// Rows of 16 bytes become columns. Written without loops, which a compiler would keep in memory
/// rather than registers.
void transpose(const uint8_t* const* rows, uint8_t* const* out) {
  transpose(rows, out, std::make_index_sequence<kLanes>());
}

#else

void transpose(const uint8_t* const* rows, uint8_t* const* out) {
  for (size_t y = 0; y < kLanes; ++y) {
    for (size_t x = 0; x < kLanes; ++x) out[x][y] = rows[y][x];
  }
}

#endif

void one_pass(const uint8_t* in, size_t lines, const Box& box, uint8_t* out) {
#if defined(__SSE2__)
  if (box.radius <= kMaxNarrowRadius) return narrow_box_pass(in, lines, box, out);
#endif
  box_pass(in, lines, box, out);
}

/// All passes over the lines, with room for as many at `between`. They come out at the address that
/// is returned.
const uint8_t* blur_lines(uint8_t* lines, size_t count, const Box& box, uint8_t* between) {
  static_assert(kPasses == 3);
  one_pass(lines, count, box, between);
  one_pass(between, count, box, lines);
  one_pass(lines, count, box, between);
  return between;
}

/// Room for so many lines. transpose() writes whole blocks of 16 bytes of a row.
size_t room_for(size_t lines) { return (lines + kLanes) * kLine; }

void blur_columns(Canvas& canvas, const Box& box, uint8_t* scratch) {
  uint8_t* const pixels = canvas.pixels();
  const ImageSize size = canvas.size();
  const size_t stride = size.width * Canvas::kRgb;
  uint8_t* between = scratch + room_for(size.height);
  for (size_t x = 0; x < stride; x += kLine) {
    canvas.throw_if_stopped();
    const size_t bytes = std::min(kLine, stride - x);
    for (size_t y = 0; y < size.height; ++y) {
      std::memcpy(scratch + y * kLine, pixels + y * stride + x, bytes);
    }
    const uint8_t* blurred = blur_lines(scratch, size.height, box, between);
    for (size_t y = 0; y < size.height; ++y) {
      std::memcpy(pixels + y * stride + x, blurred + y * kLine, bytes);
    }
  }
}

/// A block of its own for where the picture ends, since transpose() takes nothing but whole ones.
struct Corner {
  uint8_t bytes[kLanes][kLanes] = {};
};

void blur_rows(Canvas& canvas, const Box& box, uint8_t* scratch) {
  uint8_t* const pixels = canvas.pixels();
  const ImageSize size = canvas.size();
  const size_t stride = size.width * Canvas::kRgb;
  uint8_t* between = scratch + room_for(size.width);
  for (size_t y = 0; y < size.height; y += kLanes) {
    canvas.throw_if_stopped();
    const size_t rows = std::min(kLanes, size.height - y);
    uint8_t* first = pixels + y * stride;
    // Byte x of all the rows is 16 bytes in a row, and three of these are a line.
    Corner corner;
    const uint8_t* from[kLanes];
    uint8_t* to[kLanes];
    for (size_t x = 0; x < stride; x += kLanes) {
      const size_t bytes = std::min(kLanes, stride - x);
      for (size_t i = 0; i < kLanes; ++i) {
        // Of rows that there are not, anything may be blurred: the last one once more.
        const uint8_t* row = first + std::min(i, rows - 1) * stride + x;
        if (bytes < kLanes) {
          std::memcpy(corner.bytes[i], row, bytes);
          row = corner.bytes[i];
        }
        from[i] = row;
        to[i] = scratch + (x + i) * kLanes;
      }
      transpose(from, to);
    }
    const uint8_t* blurred = blur_lines(scratch, size.width, box, between);
    for (size_t x = 0; x < stride; x += kLanes) {
      const size_t bytes = std::min(kLanes, stride - x);
      const bool whole = bytes == kLanes && rows == kLanes;
      for (size_t i = 0; i < kLanes; ++i) {
        from[i] = blurred + (x + i) * kLanes;
        to[i] = whole ? first + i * stride + x : corner.bytes[i];
      }
      transpose(from, to);
      if (whole) continue;
      for (size_t i = 0; i < rows; ++i) {
        std::memcpy(first + i * stride + x, corner.bytes[i], bytes);
      }
    }
  }
}

}  // namespace

void pillow_blur(double radius_x, double radius_y, Canvas& canvas) {
  const ImageSize size = canvas.size();
  const float x = box_radius(static_cast<float>(radius_x));
  const float y = box_radius(static_cast<float>(radius_y));
  const size_t lines = std::max(x != 0 ? size.width : 0, y != 0 ? size.height : 0);
  if (lines == 0) return;
  uint8_t* scratch = canvas.scratch(2 * room_for(lines));
  if (x != 0) blur_rows(canvas, box_of(x), scratch);
  if (y != 0) blur_columns(canvas, box_of(y), scratch);
}

}  // namespace fastloader
