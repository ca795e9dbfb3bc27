#include "image/jpeg/scans.h"

#include <algorithm>
#include <cstring>

#include "image/jpeg/options.h"

namespace fastloader {
namespace {

constexpr uint8_t kEndOfImage = 0xd9;
constexpr uint8_t kScan = 0xda;

/// libjpeg takes several scans of such a frame only if the first lacks a component.
bool is_sequential(uint8_t frame) {
  return frame == 0xc0 || frame == 0xc1 || frame == 0xc3 || frame == 0xc9;
}

/// Whether libjpeg reads a length behind the marker, wherever it meets it. It passes over the other
/// markers (a scan's restarts, and what it takes for damage there), or gives the picture up.
bool has_segment(uint8_t marker) {
  return (marker >= 0xc0 && marker <= 0xcf) || (marker > kEndOfImage && marker != 0xff);
}

uint32_t number(const uint8_t* at) { return static_cast<uint32_t>(at[0] << 8 | at[1]); }

}  // namespace

bool is_jpeg_frame(uint8_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

JpegScans count_jpeg_scans(const uint8_t* data, size_t size) {
  JpegScans found;
  if (size < 2 || data[0] != 0xff || data[1] != 0xd8) return found;
  uint8_t frame = 0;
  uint8_t components = 0;
  size_t at = 2;
  while (at + 1 < size) {
    const void* next = std::memchr(data + at, 0xff, size - 1 - at);
    if (next == nullptr) break;
    at = static_cast<size_t>(static_cast<const uint8_t*>(next) - data) + 1;
    const uint8_t marker = data[at];
    if (marker == kEndOfImage && found.scans > 0) break;  // without scans: of tables for the rest
    if (!has_segment(marker)) continue;                   // another 0xff may begin the marker
    ++at;
    if (marker == kScan) ++found.scans;
    const size_t left = size - at;
    if (left < 2) break;
    if (is_jpeg_frame(marker) && left >= 8) {
      // A second one is an error to libjpeg. Of two the larger is what the work is measured by.
      if (uint64_t{number(data + at + 3)} * number(data + at + 5) >=
          uint64_t{found.width} * found.height) {
        found.height = number(data + at + 3);
        found.width = number(data + at + 5);
      }
      frame = marker;
      components = data[at + 7];
    }
    if (marker == kScan && found.scans == 1 && left > 2 && is_sequential(frame) &&
        data[at + 2] >= components) {
      break;
    }
    at += std::clamp<size_t>(number(data + at), 2, left);
  }
  return found;
}

int most_jpeg_scans(uint64_t pixels, const JpegOptions& options) {
  const uint64_t most = options.work_limit / std::max<uint64_t>(pixels, 1);
  return static_cast<int>(std::min<uint64_t>(options.scan_limit, most));
}

uint64_t most_jpeg_work(uint64_t pixel_limit) {
  constexpr uint64_t kTimes = 12;
  return std::max(kMostWork, std::min(pixel_limit, UINT64_MAX / kTimes) * kTimes);
}

std::string too_many_scans(uint32_t width, uint32_t height, const JpegOptions& options) {
  const int most = most_jpeg_scans(uint64_t{width} * height, options);
  return "the picture of " + std::to_string(width) + "x" + std::to_string(height) +
         " pixels has more than " + std::to_string(most) + " scans; " +
         std::to_string(options.scan_limit) + " are the most, and " +
         std::to_string(options.work_limit) +
         " for scans times pixels: it could be a decompression bomb. If you trust it, write it "
         "anew "
         "with one scan: jpegtran -copy all -outfile NEW.jpg OLD.jpg";
}

}  // namespace fastloader
