#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

enum class PngColor : uint8_t { kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6 };

struct PngHeader {
  uint32_t width = 0;
  uint32_t height = 0;
  int depth = 8;  ///< bits per sample or palette index
  PngColor color = PngColor::kGrey;
  bool interlaced = false;

  /// Bits of a pixel.
  unsigned pixel_bits() const;
  /// Bytes of a row of so many pixels, without the byte that names its filter.
  size_t row_bytes(uint32_t pixels) const;
};

/// Where everything that makes pixels is in a file.
struct PngFile {
  PngHeader header;
  const uint8_t* palette = nullptr;  ///< of PngColor::kPalette: red, green, blue
  size_t colors = 0;                 ///< in it
  /// The IDAT chunks, one behind the other, each from its length to its checksum.
  const uint8_t* data = nullptr;
  const uint8_t* data_end = nullptr;
};

/// Walks over a file's chunks.
///
/// Pillow reads them in Python, with rules of its own: it leaves the checksums of IDAT alone, takes
/// a text called "transparency" for a tRNS, refuses text that inflates too far, and much of what it
/// refuses is allowed by the standard. So this accepts only files that are in order by both, and
/// throws UnsupportedImage at anything else, whatever Pillow makes of it. The first frame of an
/// APNG is accepted where it is the whole picture.
///
/// Takes time in proportion to the file, and inflates 64 MiB of text at most, as Pillow does.
PngFile read_png(const uint8_t* data, size_t size);

/// Throws DecodeError unless all IDAT chunks have the checksums that they say.
void check_png_data(const PngFile& file);

bool begins_as_png(const uint8_t* begin, size_t size);

}  // namespace fastloader
