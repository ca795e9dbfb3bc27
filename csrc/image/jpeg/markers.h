#pragma once

#include <cstdint>

/// The second bytes of markers; the first is 0xff.
namespace fastloader::jpeg_marker {

constexpr uint8_t kBaseline = 0xc0;
constexpr uint8_t kExtended = 0xc1;
constexpr uint8_t kProgressive = 0xc2;
constexpr uint8_t kHuffmanTables = 0xc4;
constexpr uint8_t kLastFrame = 0xcf;
constexpr uint8_t kFirstRestart = 0xd0;
constexpr uint8_t kEndOfImage = 0xd9;
constexpr uint8_t kScan = 0xda;
constexpr uint8_t kQuantization = 0xdb;
constexpr uint8_t kRestartInterval = 0xdd;
constexpr uint8_t kFirstApplication = 0xe0;
constexpr uint8_t kAdobe = 0xee;
constexpr uint8_t kLastApplication = 0xef;
constexpr uint8_t kComment = 0xfe;

/// The one that ends an interval between restarts. Intervals are counted from 0.
constexpr uint8_t restart_behind(uint64_t interval) {
  constexpr uint64_t kNumbers = 8;
  return static_cast<uint8_t>(kFirstRestart + interval % kNumbers);
}

/// Behind any number of 0xff, which may stand before a marker, the marker's second byte; `end` if
/// the file ends before it.
inline const uint8_t* behind_fill(const uint8_t* at, const uint8_t* end) {
  while (at < end && *at == 0xff) ++at;
  return at;
}

/// The second byte of the first marker among entropy-coded bytes. nullptr if there is none, or if
/// fill stands before a stuffed byte, which means several things to several decoders.
const uint8_t* find_next(const uint8_t* at, const uint8_t* end);

}  // namespace fastloader::jpeg_marker
