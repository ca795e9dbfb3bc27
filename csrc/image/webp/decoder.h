#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/picture.h"

namespace fastloader {

/// Turns a WebP into rows of RGB: those of a region, to the bit as upstream Pillow's
/// `Image.open(file).convert("RGB").crop(...)`. Of an animation: the first frame, if that is the
/// whole picture.
///
/// Is used as PngDecoder, and throws the same. begin() decodes the region, and the rows below it if
/// `check_below` asks for that. libwebp takes most damaged data for pixels, as it does for Pillow,
/// but a file that has been cut off is always an error.
class WebpDecoder {
 public:
  /// Whether this is compiled in. If not, open() throws UnsupportedImage.
  static bool available();
  static bool begins_as_webp(const uint8_t* begin, size_t size);

  PictureSize open(const uint8_t* data, size_t size, const PictureOptions& options = {});
  void begin(const PictureRegion& region);
  const uint8_t* read_row();

  /// Memory kept from picture to picture, libwebp's own aside.
  size_t scratch_bytes() const { return pixels_.capacity(); }

 private:
  PictureOptions options_;
  PictureSize size_;
  const uint8_t* frame_ = nullptr;  // what libwebp calls a bitstream: of the first frame
  size_t frame_bytes_ = 0;
  std::vector<uint8_t> pixels_;    // RGB, of what was decoded
  const uint8_t* next_ = nullptr;  // the region's next row
  size_t row_bytes_ = 0;           // from a row to the next
  uint32_t rows_left_ = 0;
  bool opened_ = false;
};

}  // namespace fastloader
