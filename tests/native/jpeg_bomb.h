#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fastloader::testing {

/// A grey progressive JPEG of that size, whose scans after the first hold nothing, in 18 bytes
/// each.
inline std::vector<uint8_t> jpeg_bomb(uint32_t width, uint32_t height, int scans) {
  std::vector<uint8_t> out{0xff, 0xd8};
  const auto segment = [&out](uint8_t code, const std::vector<uint8_t>& payload) {
    const size_t length = payload.size() + 2;
    out.insert(out.end(), {0xff, code, static_cast<uint8_t>(length >> 8),
                           static_cast<uint8_t>(length & 0xff)});
    out.insert(out.end(), payload.begin(), payload.end());
  };
  std::vector<uint8_t> quantisation(65, 1);
  quantisation[0] = 0;
  segment(0xdb, quantisation);
  segment(0xc2,
          {8, static_cast<uint8_t>(height >> 8), static_cast<uint8_t>(height & 0xff),
           static_cast<uint8_t>(width >> 8), static_cast<uint8_t>(width & 0xff), 1, 1, 0x11, 0});
  // A single symbol of one bit each: no difference, and a run of 16384 blocks or more.
  for (const auto& [table, symbol] : {std::pair<int, int>{0x00, 0x00}, {0x10, 0xe0}}) {
    std::vector<uint8_t> codes(18, 0);
    codes[0] = static_cast<uint8_t>(table);
    codes[1] = 1;
    codes[17] = static_cast<uint8_t>(symbol);
    segment(0xc4, codes);
  }
  for (int i = 0; i < scans; ++i) {
    const bool first = i == 0;
    segment(0xda, {1, 1, 0, static_cast<uint8_t>(first ? 0 : 1),
                   static_cast<uint8_t>(first ? 0 : 63), 0});
    out.insert(out.end(), 8, 0);
  }
  out.insert(out.end(), {0xff, 0xd9});
  return out;
}

}  // namespace fastloader::testing
