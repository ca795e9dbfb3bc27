#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "image/picture.h"

namespace fastloader {

/// Turns a PNG into rows of RGB: those of a region, to the bit as upstream Pillow's
/// `Image.open(file).convert("RGB").crop(...)`. Of an APNG: the first picture.
///
///   PngDecoder decoder;                    // one per thread, for many pictures
///   const PictureSize size = decoder.open(data, bytes, options);  // `data` must stay
///   decoder.begin({left, top, width, height});
///   for (uint32_t y = 0; y < height; ++y) use(decoder.read_row());
///
/// Any call may throw DecodeError, UnsupportedImage (Pillow may be able to), RefusedImage, Stopped
/// or InvalidArgument (a caller's mistake); open() makes the decoder ready again.
///
/// Only files that are in perfect order succeed, so that none does at which Pillow fails: the
/// chunks are complete and have their checksums, and the data inflate to what they should. Rows
/// below the region are not inflated unless `check_below` asks for it or the picture is interlaced.
/// The checksums of the data then have to be right instead, which finds any damage by accident.
///
/// Without libpng, as Pillow: as distributions build it, its filters have no SIMD, and take two
/// thirds of the time that zlib takes.
class PngDecoder {
 public:
  /// Whether this is compiled in. If not, open() throws UnsupportedImage.
  static bool available();
  static bool begins_as_png(const uint8_t* begin, size_t size);

  PngDecoder();
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Reads all but the picture's data.
  PictureSize open(const uint8_t* data, size_t size, const PictureOptions& options = {});

  /// Makes the region's first row the next one. Once per open().
  void begin(const PictureRegion& region);

  /// The region's next row: `region.width` times red, green, blue. Valid until the next call.
  const uint8_t* read_row();

  /// Memory kept from picture to picture, zlib's own aside.
  size_t scratch_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fastloader
