#include "image/jpeg/markers.h"

#include <cstddef>
#include <cstring>

namespace fastloader::jpeg_marker {

const uint8_t* find_next(const uint8_t* at, const uint8_t* end) {
  while (at < end) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xff, static_cast<size_t>(end - at)));
    if (at == nullptr) return nullptr;
    const uint8_t* const marker = behind_fill(at, end);
    if (marker == end) return nullptr;
    if (*marker != 0) return marker;
    if (marker - at > 1) return nullptr;
    at = marker + 1;
  }
  return nullptr;
}

}  // namespace fastloader::jpeg_marker
