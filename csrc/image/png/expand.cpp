#include "image/png/expand.h"

#include <cstring>

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

/// Where in a pixel the bytes are that red, green and blue are made of.
struct Places {
  size_t step;
  size_t red;
  size_t green;
  size_t blue;
};

Places places_of(const PngHeader& header) {
  const size_t sample = header.depth == 16 ? 2 : 1;
  switch (header.color) {
    case PngColor::kGreyAlpha:
      return {2 * sample, 0, 0, 0};
    case PngColor::kRgb:
      return {3 * sample, 0, sample, 2 * sample};
    default:
      return {4 * sample, 0, sample, 2 * sample};
  }
}

}  // namespace

void PngExpander::begin(const PngFile& file, bool indices) {
  header_ = file.header;
  indices_ = indices;
  const bool palette = header_.color == PngColor::kPalette;
  if (!palette && (header_.color != PngColor::kGrey || header_.depth > 8)) return;
  const size_t values = size_t{1} << header_.depth;
  for (size_t value = 0; value < values; ++value) {
    std::array<uint8_t, kRgb>& entry = table_[value];
    if (indices) {
      // Pillow's mode 1 has a bit's value, and its mode L that of shorter greys in eight bits.
      const bool as_stored = palette || header_.depth == 1;
      entry = {static_cast<uint8_t>(as_stored ? value : value * 255 / (values - 1)), 0, 0};
    } else if (!palette) {
      entry.fill(static_cast<uint8_t>(value * 255 / (values - 1)));
    } else if (value < file.colors) {
      std::memcpy(entry.data(), file.palette + value * kRgb, kRgb);
    } else {
      entry.fill(0);
    }
  }
}

void PngExpander::look_up(const uint8_t* row, size_t first, size_t count, uint8_t* out) const {
  if (header_.depth == 8) {
    for (size_t x = first; x < first + count; ++x, out += kRgb) {
      std::memcpy(out, table_[row[x]].data(), kRgb);
    }
    return;
  }
  const auto depth = static_cast<unsigned>(header_.depth);
  const unsigned mask = (1u << depth) - 1;
  for (size_t x = first; x < first + count; ++x, out += kRgb) {
    const size_t bit = x * depth;
    const auto shift = static_cast<unsigned>(8 - depth - bit % 8);
    std::memcpy(out, table_[(row[bit / 8] >> shift) & mask].data(), kRgb);
  }
}

void PngExpander::expand(const uint8_t* row, size_t first, size_t count, uint8_t* out) const {
  const bool grey = header_.color == PngColor::kGrey;
  if (header_.color == PngColor::kPalette || (grey && header_.depth <= 8)) {
    return look_up(row, first, count, out);
  }
  if (grey) {
    const uint8_t* in = row + 2 * first;
    if (indices_) {
      for (size_t x = 0; x < count; ++x, in += 2, out += kRgb) {
        out[0] = in[1];
        out[1] = in[0];
        out[2] = 0;
      }
      return;
    }
    for (size_t x = 0; x < count; ++x, in += 2, out += kRgb) {
      const uint8_t value = in[0] == 0 ? in[1] : 255;
      out[0] = out[1] = out[2] = value;
    }
    return;
  }
  const Places at = places_of(header_);
  const uint8_t* in = row + at.step * first;
  for (size_t x = 0; x < count; ++x, in += at.step, out += kRgb) {
    out[0] = in[at.red];
    out[1] = in[at.green];
    out[2] = in[at.blue];
  }
}

}  // namespace fastloader
