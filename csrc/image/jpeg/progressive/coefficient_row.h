#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/file.h"
#include "image/jpeg/kernels/pixels.h"
#include "image/jpeg/planes.h"

namespace fastloader {

/// The blocks of one row of MCUs while their scans come: of those that a region needs, the
/// coefficients; of all, which ones are not 0, because it depends on that how many bits a block
/// takes in later scans. Lines are rows of a component's blocks, counted from the row's first.
class CoefficientRow {
 public:
  /// Both must stay.
  void begin(const JpegFile& file, const JpegPlanes& planes);

  /// Makes all blocks of the row empty.
  void begin_row(uint32_t mcu_row);

  /// Of the blocks of a line: bit k if coefficient k is not 0. Nothing is said of the first ones.
  uint64_t* nonzero(size_t component, uint32_t line) {
    const Part& part = part_[component];
    return part.nonzero + size_t{line} * part.across;
  }

  /// 64 numbers, in the file's order. Only of blocks in the region's MCUs.
  int16_t* block(size_t component, uint32_t x, uint32_t line) {
    const Part& part = part_[component];
    return part.coefficients + (size_t{line} * part.stored + (x - part.origin)) * kJpegBlock;
  }

  /// Whether the region has a part in the row; if not, the row has no coefficients.
  bool in_region() const { return mcu_row_ >= planes_->first_mcu_row(); }
  bool needs_line(size_t component, uint32_t line) const {
    return planes_->needs_row(component, row_of(component, line));
  }
  const JpegPlanes& planes() const { return *planes_; }

  uint32_t mcu_row() const { return mcu_row_; }
  /// The line's number in the whole picture.
  uint32_t row_of(size_t component, uint32_t line) const {
    return mcu_row_ * part_[component].lines + line;
  }
  uint32_t lines(size_t component) const { return part_[component].lines; }
  /// Blocks in each MCU of a line.
  uint32_t in_mcu(size_t component) const { return part_[component].in_mcu; }

  /// Writes the samples of the blocks that the region needs.
  void transform(const JpegPixelKernels& kernels, JpegPlanes& planes);

  size_t scratch_bytes() const {
    return nonzero_.capacity() * sizeof(uint64_t) + coefficients_.capacity() * sizeof(int16_t);
  }

 private:
  struct Part {
    uint64_t* nonzero = nullptr;
    int16_t* coefficients = nullptr;
    uint32_t lines = 0;
    uint32_t in_mcu = 0;
    uint32_t across = 0;  // blocks in a line, with those that fill the last MCU
    uint32_t stored = 0;  // of which there are coefficients
    uint32_t origin = 0;  // the first of these
  };

  void clear_first();
  void transform_line(const JpegPixelKernels& kernels, JpegPlanes& planes, size_t component,
                      uint32_t line);

  const JpegFile* file_ = nullptr;
  const JpegPlanes* planes_ = nullptr;
  Part part_[kMaxOwnComponents];
  uint32_t mcu_row_ = 0;
  std::vector<uint64_t> nonzero_;
  std::vector<int16_t> coefficients_;
  /// All coefficients are 0, as they must be when a row begins.
  bool clean_ = true;
};

}  // namespace fastloader
