#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fastloader {

struct JpegOptions;

/// Whether the marker begins a frame header.
bool is_jpeg_frame(uint8_t marker);

struct JpegScans {
  uint32_t width = 0;
  uint32_t height = 0;
  uint64_t scans = 0;
};

/// Counts the scans that libjpeg would begin, from the markers alone. Call it before another
/// decoder gets the bytes, since that decoder cannot be stopped. Decodes nothing and takes no
/// memory. Goes over the bytes once, at the speed of memchr.
///
/// Never fewer than libjpeg begins, and as many if it comes to the picture's end without an error.
/// A picture whose first scan holds everything has one: libjpeg reads no further. What does not
/// begin as a JPEG has none.
JpegScans count_jpeg_scans(const uint8_t* data, size_t size);

/// How many scans a picture of that many pixels may have.
int most_jpeg_scans(uint64_t pixels, const JpegOptions& options);

/// Returns how much work (scans times pixels) is not too much: `kMostWork`, or more in proportion
/// if the user has lifted Pillow's limit of pixels. A picture within that limit may therefore
/// always have twelve scans.
uint64_t most_jpeg_work(uint64_t pixel_limit);

/// For the message about a picture that has more.
std::string too_many_scans(uint32_t width, uint32_t height, const JpegOptions& options);

}  // namespace fastloader
