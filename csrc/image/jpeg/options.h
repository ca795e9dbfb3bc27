#pragma once

#include <cstdint>

#include "image/jpeg/seek/indices.h"
#include "image/picture.h"

namespace fastloader {

/// A scan may be a few bytes long and still has every block of the picture visited.
constexpr uint32_t kMostScans = 100;
/// Scans times pixels: about a second of one thread. It is twelve times Pillow's limit of pixels.
constexpr uint64_t kMostWork = uint64_t{1} << 31;

/// What to do with a picture whose bytes end before its last row.
enum class Truncated : uint8_t {
  kError,  ///< DecodeError, exactly where Pillow says "image file is truncated"
  kPad,    ///< what libjpeg can recover, as Pillow with ImageFile.LOAD_TRUNCATED_IMAGES
};

/// `stop` is looked at after every row of blocks. `check_below` also looks for headers that Pillow
/// may refuse and libjpeg does not (UnsupportedImage: Pillow decides), and costs the time of
/// entropy-decoding the rest.
struct JpegOptions : PictureOptions {
  uint32_t scan_limit = kMostScans;  ///< a picture of more scans is refused, once they have come
  uint64_t work_limit = kMostWork;   ///< scans times pixels
  Truncated truncated = Truncated::kError;
  bool own = true;  ///< also with the decoder of our own, where it knows the file
  /// The picture's seek index, if one is at hand, and where else it may be found. What is wrong
  /// with an index costs time and no more. With `check_below` none is used: it would pass over
  /// damage.
  SeekBytes seek_index;
  const SeekIndices* seek_indices = nullptr;
  /// Takes for granted what the libjpeg that is loaded is to be tested for (jpeg/libjpeg/probe.h).
  bool probing = false;
};

}  // namespace fastloader
