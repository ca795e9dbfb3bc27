#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/file.h"
#include "image/jpeg/kernels/pixels.h"
#include "image/picture.h"

namespace fastloader {

/// The samples of a region's blocks, on their way to pixels: the last two rows of MCUs, since
/// interpolated colour needs a row of the MCUs above.
class JpegPlanes {
 public:
  /// The region must lie in the picture.
  void begin(const JpegFile& file, const PictureRegion& region);

  /// The MCUs in which the region's blocks lie.
  uint32_t first_mcu() const { return first_mcu_; }
  uint32_t end_mcu() const { return end_mcu_; }
  uint32_t first_mcu_row() const { return first_mcu_row_; }

  /// The columns of a component's blocks that the region needs, and the row behind the last one.
  uint32_t first_column(size_t component) const { return plane_[component].first_x; }
  uint32_t end_column(size_t component) const { return plane_[component].end_x; }
  uint32_t end_row(size_t component) const { return plane_[component].end_y; }

  /// Whether the region needs a block of this column, or row, of a component's blocks.
  bool needs_column(size_t component, uint32_t x) const {
    return x >= plane_[component].first_x && x < plane_[component].end_x;
  }
  bool needs_row(size_t component, uint32_t y) const {
    return y >= plane_[component].first_y && y < plane_[component].end_y;
  }

  /// Where the samples of a block in these MCUs go. It stays until two rows of MCUs later.
  uint8_t* block(size_t component, uint32_t x, uint32_t y);
  size_t stride(size_t component) const { return plane_[component].stride; }

  /// All blocks of this row of MCUs are there.
  void finish_mcu_row(uint32_t mcu_row);

  /// Rows of the picture above this one can be read, as far as the region has them.
  uint32_t ready() const { return ready_; }

  /// A row of the picture, the region's columns, RGB. Valid until the next call.
  const uint8_t* read_row(const JpegPixelKernels& kernels, uint32_t y);

  size_t scratch_bytes() const { return samples_.capacity() + row_.capacity(); }

 private:
  struct Plane {
    uint8_t* samples = nullptr;  // of the first MCU
    size_t stride = 0;
    uint32_t rows = 0;    // a power of 2; they are used in turn
    uint32_t origin = 0;  // the column of blocks that `samples` begins with
    // Blocks.
    uint32_t first_x = 0;
    uint32_t end_x = 0;
    uint32_t first_y = 0;
    uint32_t end_y = 0;
    // Samples of the picture for one of this plane.
    uint32_t across = 1;
    uint32_t down = 1;
    uint32_t width = 0;
    uint32_t height = 0;
  };

  void plan(const JpegFile& file);
  void place();
  uint8_t* samples_of(const Plane& plane, uint32_t x, uint32_t y) const;
  const uint8_t* chroma_row(const JpegPixelKernels& kernels, const Plane& plane, uint32_t y,
                            uint8_t* out);

  Plane plane_[kMaxOwnComponents];
  size_t components_ = 0;
  PictureRegion region_;
  uint32_t mcu_height_ = 0;  // in rows of the picture
  uint32_t first_mcu_ = 0;
  uint32_t end_mcu_ = 0;
  uint32_t first_mcu_row_ = 0;
  uint32_t end_mcu_row_ = 0;
  uint32_t ready_ = 0;
  std::vector<uint8_t> samples_;
  std::vector<uint8_t> row_;  // RGB, and behind it the two rows of colour
  size_t chroma_bytes_ = 0;   // of one of these
};

}  // namespace fastloader
