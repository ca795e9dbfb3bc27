#pragma once

#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "random.h"

// PNGs made in memory, and what the standard says of their pixels, read one by one.

namespace fastloader::testing {

using Bytes = std::vector<uint8_t>;

struct PngSpec {
  uint32_t width = 1;
  uint32_t height = 1;
  int depth = 8;
  int color = 2;
  bool interlaced = false;
  Bytes palette;
  Bytes filtered;  ///< rows with their filters, before they are deflated

  size_t bits() const {
    const std::array<size_t, 7> channels{1, 0, 3, 1, 2, 0, 4};
    return channels[static_cast<size_t>(color)] * static_cast<size_t>(depth);
  }
};

struct PngPass {
  size_t x, y, dx, dy;
};

inline std::vector<PngPass> passes_of(const PngSpec& spec) {
  if (!spec.interlaced) return {{0, 0, 1, 1}};
  return {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
          {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
}

inline size_t columns_of(const PngSpec& spec, const PngPass& pass) {
  return (spec.width + pass.dx - 1 - pass.x) / pass.dx;
}

/// Any bytes are filtered rows, if the first of each row names a filter.
inline PngSpec random_png(Random& random) {
  constexpr std::array<std::array<int, 2>, 15> kKinds{{{0, 1},
                                                       {0, 2},
                                                       {0, 4},
                                                       {0, 8},
                                                       {0, 16},
                                                       {2, 8},
                                                       {2, 16},
                                                       {3, 1},
                                                       {3, 2},
                                                       {3, 4},
                                                       {3, 8},
                                                       {4, 8},
                                                       {4, 16},
                                                       {6, 8},
                                                       {6, 16}}};
  const auto& kind = kKinds[random.below(kKinds.size())];
  PngSpec spec;
  spec.color = kind[0];
  spec.depth = kind[1];
  spec.width = random.between(1, random.chance(10) ? 9000 : 60);
  spec.height = random.between(1, 60);
  spec.interlaced = random.chance(40);
  if (spec.color == 3) spec.palette.resize(3 * random.between(1, 1u << spec.depth));
  for (uint8_t& byte : spec.palette) byte = static_cast<uint8_t>(random.below(256));
  for (const PngPass& pass : passes_of(spec)) {
    const size_t columns = columns_of(spec, pass);
    for (size_t y = pass.y; columns > 0 && y < spec.height; y += pass.dy) {
      spec.filtered.push_back(static_cast<uint8_t>(random.below(5)));
      for (size_t n = (columns * spec.bits() + 7) / 8; n > 0; --n) {
        spec.filtered.push_back(static_cast<uint8_t>(random.below(256)));
      }
    }
  }
  return spec;
}

inline void put_number(Bytes& out, uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(number >> shift));
}

inline void put_chunk(Bytes& out, const std::string& name, const Bytes& data) {
  put_number(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  out.insert(out.end(), name.begin(), name.end());
  out.insert(out.end(), data.begin(), data.end());
  const auto sum = crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin));
  put_number(out, static_cast<uint32_t>(sum));
}

inline Bytes deflated(const Bytes& data) {
  uLongf size = compressBound(data.size());
  Bytes out(size);
  if (compress2(out.data(), &size, data.data(), data.size(), 1) != Z_OK) std::abort();
  out.resize(size);
  return out;
}

/// The file; its data in chunks of `piece` bytes.
inline Bytes png_file(const PngSpec& spec, size_t piece = 1000) {
  Bytes out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Bytes header;
  put_number(header, spec.width);
  put_number(header, spec.height);
  header.insert(header.end(), {static_cast<uint8_t>(spec.depth), static_cast<uint8_t>(spec.color),
                               0, 0, static_cast<uint8_t>(spec.interlaced)});
  put_chunk(out, "IHDR", header);
  if (spec.color == 3) put_chunk(out, "PLTE", spec.palette);
  const Bytes stream = deflated(spec.filtered);
  for (size_t at = 0; at < stream.size(); at += piece) {
    const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t size = std::min(piece, stream.size() - at);
    put_chunk(out, "IDAT", Bytes(begin, begin + static_cast<std::ptrdiff_t>(size)));
  }
  put_chunk(out, "IEND", {});
  return out;
}

inline int paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int from_left = std::abs(guess - left);
  const int from_above = std::abs(guess - above);
  const int from_corner = std::abs(guess - corner);
  if (from_left <= from_above && from_left <= from_corner) return left;
  return from_above <= from_corner ? above : corner;
}

/// RGB as Pillow makes it, of the spec alone.
inline Bytes plain_pixels(const PngSpec& spec) {
  Bytes rgb(size_t{spec.width} * spec.height * 3);
  const size_t bits = spec.bits();
  const size_t step = std::max<size_t>(1, bits / 8);
  const size_t sample = spec.depth == 16 ? 2 : 1;
  size_t at = 0;
  for (const PngPass& pass : passes_of(spec)) {
    const size_t columns = columns_of(spec, pass);
    Bytes above((columns * bits + 7) / 8);
    for (size_t y = pass.y; columns > 0 && y < spec.height; y += pass.dy) {
      const int filter = spec.filtered[at++];
      Bytes row(above.size());
      for (size_t x = 0; x < row.size(); ++x) {
        const int left = x < step ? 0 : row[x - step];
        const int corner = x < step ? 0 : above[x - step];
        const int guess[] = {0, left, above[x], (left + above[x]) / 2,
                             paeth(left, above[x], corner)};
        row[x] = static_cast<uint8_t>(spec.filtered[at++] + guess[filter]);
      }
      for (size_t x = 0; x < columns; ++x) {
        uint8_t* out = rgb.data() + (y * spec.width + pass.x + x * pass.dx) * 3;
        for (size_t c = 0; c < 3; ++c) {
          if (spec.depth < 8 || spec.color == 3) {
            const size_t bit = x * bits;
            const size_t value =
                (size_t{row[bit / 8]} >> (8 - bits - bit % 8)) & ((1u << bits) - 1);
            if (spec.color == 0) {
              out[c] = static_cast<uint8_t>(value * 255 / ((1u << bits) - 1));
            } else {
              out[c] = value * 3 < spec.palette.size() ? spec.palette[value * 3 + c] : uint8_t{0};
            }
          } else {
            const uint8_t* in = row.data() + x * step + (spec.color % 4 == 0 ? 0 : c * sample);
            const bool cut = spec.color == 0 && spec.depth == 16;
            out[c] = !cut ? in[0] : in[0] == 0 ? in[1] : uint8_t{255};
          }
        }
      }
      above = row;
    }
  }
  return rgb;
}

}  // namespace fastloader::testing
