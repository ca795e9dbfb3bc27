#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/own.h"
#include "image/jpeg/progressive/coefficient_row.h"
#include "image/jpeg/progressive/scan_bytes.h"
#include "image/jpeg/progressive/scan_decoder.h"

namespace fastloader {

/// Decodes a region of a progressive JPEG: all scans side by side, one row of MCUs at a time, since
/// a block depends on nothing of earlier scans but the same block. So there is no memory for the
/// whole picture's coefficients, and what lies below the region is looked at in no scan. Blocks
/// outside of the region are parsed for what the next scans need to know of them.
class ProgressiveJpeg : public OwnJpeg {
 public:
  using OwnJpeg::OwnJpeg;

  JpegRefusal open() override;

  /// Of all scans, what stands between them has been seen. Damage within them is no error to
  /// Pillow.
  JpegRefusal check_rest() override { return JpegRefusal::kNone; }

  void close() override { bytes_.close(); }

  size_t scratch_bytes() const override;

 private:
  void begin_region() override;
  bool decode_row(uint32_t mcu_row) override;

  bool is_last_of_band(size_t scan) const;
  void pass_intervals(uint32_t mcu_row);
  bool decode_scans(uint32_t mcu_row);

  ScanBytes bytes_;
  std::vector<ScanDecoder> scans_;  // more than the file has, if one before had more
  CoefficientRow row_;
  uint32_t at_ = 0;  // the next row of MCUs
};

}  // namespace fastloader
