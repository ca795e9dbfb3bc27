#include "image/png/unfilter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

// A pixel in a vector: every byte waits for the same byte of the pixel before, so only the bytes of
// one pixel can be computed together. The compiler's own vectors, since every instruction set that
// it knows has what is needed here.
using Bytes = uint8_t __attribute__((vector_size(8)));
using Lanes = int16_t __attribute__((vector_size(16)));

/// Reads bytes behind the pixel, too: a load of 3 would be two.
template <size_t kStep>
Lanes load(const uint8_t* at) {
  Bytes bytes{};
  std::memcpy(&bytes, at, kStep <= 4 ? 4 : 8);
  return __builtin_convertvector(bytes, Lanes);
}

template <size_t kStep>
void store(uint8_t* at, const Lanes& lanes) {
  const Bytes bytes = __builtin_convertvector(lanes, Bytes);
  std::memcpy(at, &bytes, kStep);
}

Lanes absolute(const Lanes& lanes) { return lanes < 0 ? -lanes : lanes; }

/// Which of left, above and above left is nearest to left + above - above left.
Lanes predict(const Lanes& left, const Lanes& above, const Lanes& corner) {
  const Lanes from_left = absolute(above - corner);
  const Lanes from_above = absolute(left - corner);
  const Lanes from_corner = absolute(left + above - corner - corner);
  const Lanes upper = from_above <= from_corner ? above : corner;
  const auto take_left = (from_left <= from_above) & (from_left <= from_corner);
  return take_left ? left : upper;
}

struct Sub {
  static Lanes predicted(const Lanes& left, const Lanes&, const Lanes&) { return left; }
};

struct Average {
  static Lanes predicted(const Lanes& left, const Lanes& above, const Lanes&) {
    return (left + above) >> 1;
  }
};

struct Paeth {
  static Lanes predicted(const Lanes& left, const Lanes& above, const Lanes& corner) {
    return predict(left, above, corner);
  }
};

template <class Filter, size_t kStep>
void undo(uint8_t* row, const uint8_t* above, size_t bytes) {
  Lanes left{};
  Lanes corner{};
  for (size_t x = 0; x < bytes; x += kStep) {
    const Lanes upper = load<kStep>(above + x);
    left = (load<kStep>(row + x) + Filter::predicted(left, upper, corner)) & 0xFF;
    store<kStep>(row + x, left);
    corner = upper;
  }
}

template <class Filter>
void undo(uint8_t* row, const uint8_t* above, size_t bytes, size_t step) {
  switch (step) {
    case 1:
      return undo<Filter, 1>(row, above, bytes);
    case 2:
      return undo<Filter, 2>(row, above, bytes);
    case 3:
      return undo<Filter, 3>(row, above, bytes);
    case 4:
      return undo<Filter, 4>(row, above, bytes);
    case 6:
      return undo<Filter, 6>(row, above, bytes);
    default:
      return undo<Filter, 8>(row, above, bytes);
  }
}

}  // namespace

void unfilter(uint8_t filter, uint8_t* row, const uint8_t* above, size_t bytes, size_t step) {
  switch (filter) {
    case 0:
      return;
    case 1:
      return undo<Sub>(row, above, bytes, step);
    case 2:
      for (size_t x = 0; x < bytes; ++x) row[x] = static_cast<uint8_t>(row[x] + above[x]);
      return;
    case 3:
      return undo<Average>(row, above, bytes, step);
    case 4:
      return undo<Paeth>(row, above, bytes, step);
    default:
      throw DecodeError("broken PNG file: filter " + std::to_string(filter));
  }
}

}  // namespace fastloader
