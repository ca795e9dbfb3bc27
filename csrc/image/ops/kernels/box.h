#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fastloader {

/// A box of 2 * radius + 1 whole pixels and a part of one on either side, in fixed point: a weight
/// of 1 is 1 << 24. What is beyond the edge counts as the pixel at the edge.
struct Box {
  uint32_t radius = 0;
  uint32_t whole = 0;
  uint32_t part = 0;
};

/// A box blur goes along lines of so many bytes, and blurs each byte with those at the same place
/// of the other lines.
constexpr size_t kBoxLine = 48;

/// Up to this radius a sum fits the 15 bits that the multiplier takes. The weights, which have 24
/// bits, go in halves of 12.
constexpr uint32_t kMaxNarrowRadius = 63;

/// Where the lines lie that enter and leave the sum of the box as it moves on to a line.
struct Ends {
  size_t leaves;  // and is the one of which a part remains on the left
  size_t enters;
  size_t beyond;  // the part on the right
};

inline Ends ends_at(size_t line, size_t last, const Box& box) {
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

/// FilterKernels::box_pass.
void box_pass_scalar(const uint8_t* in, size_t lines, const Box& box, uint8_t* out);
void box_pass_avx2(const uint8_t* in, size_t lines, const Box& box, uint8_t* out);

}  // namespace fastloader
