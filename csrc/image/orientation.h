#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "image/crop.h"

namespace fastloader {

/// How a picture is to be turned before it is shown: EXIF's numbers 1 to 8. Pillow's
/// ImageOps.exif_transpose() does it.
class Orientation {
 public:
  static constexpr uint8_t kUpright = 1;

  constexpr explicit Orientation(uint8_t exif = kUpright) : exif_(exif) {}

  bool upright() const { return exif_ == kUpright; }
  uint8_t exif() const { return exif_; }

  /// The size at which a picture is shown that is stored at this one.
  ImageSize shown(const ImageSize& stored) const;

  /// The part of the stored picture, which has this size, that makes a part of the shown one.
  CropBox stored(const CropBox& shown, const ImageSize& size) const;

  /// Turns a part of a picture: RGB, 3 bytes a pixel, rows without gaps. `size` is that of `from`.
  void turn(const uint8_t* from, const ImageSize& size, uint8_t* to) const;

 private:
  /// 5 to 8: rows become columns.
  bool transposes() const { return exif_ >= 5; }
  /// Whether the stored picture is mirrored before that, from left to right and top to bottom.
  bool mirrors_columns() const { return exif_ == 2 || exif_ == 3 || exif_ == 7 || exif_ == 8; }
  bool mirrors_rows() const { return exif_ == 3 || exif_ == 4 || exif_ == 6 || exif_ == 7; }

  uint8_t exif_;
};

/// What a JPEG, PNG or WebP says. Nothing where only Pillow can tell what Pillow makes of it:
/// several EXIF blocks, damaged ones, orientations in XMP, EXIF in a PNG or a WebP.
std::optional<Orientation> read_orientation(const uint8_t* data, size_t size);

}  // namespace fastloader
