#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// Pillow reads a JPEG's segments in Python before it gives the file to libjpeg, and refuses some
/// whose content libjpeg passes over. Returns what Pillow may stumble over in this header, for a
/// message, or nullptr for nothing. May name a segment that Pillow accepts after all, so only
/// Pillow can say what becomes of such a file. Never overlooks one that Pillow refuses.
///
/// For files whose header libjpeg has accepted; reads up to the first scan.
const char* stumbling_block_of_pillow(const uint8_t* data, size_t size);

}  // namespace fastloader
