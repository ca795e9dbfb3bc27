#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/kernels/box.h"
#include "image/ops/kernels/filter.h"

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
static_assert(kLine == kBoxLine);

constexpr size_t kPasses = 3;

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

#if defined(__SSE2__)

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

/// All passes over the lines, with room for as many at `between`. They come out at the address that
/// is returned.
const uint8_t* blur_lines(const FilterKernels& kernels, uint8_t* lines, size_t count,
                          const Box& box, uint8_t* between) {
  static_assert(kPasses == 3);
  kernels.box_pass(lines, count, box, between);
  kernels.box_pass(between, count, box, lines);
  kernels.box_pass(lines, count, box, between);
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
    const uint8_t* blurred = blur_lines(*canvas.isa().filter, scratch, size.height, box, between);
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
    const uint8_t* blurred = blur_lines(*canvas.isa().filter, scratch, size.width, box, between);
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
