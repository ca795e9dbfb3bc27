#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "image/dispatch.h"
#include "image/jpeg/file.h"
#include "image/jpeg/own.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/sequential_scan.h"

namespace fastloader {

/// Decodes a region of a sequential JPEG, one row of MCUs at a time. Blocks that the region does
/// not need are parsed and not decoded, and what lies below it is not looked at. With a seek index
/// nothing above the region is looked at either, and little beside it.
class SequentialJpeg : public OwnJpeg {
 public:
  SequentialJpeg(const Isa& isa, const JpegFile& file)
      : OwnJpeg(isa, file), scan_(*isa.jpeg_entropy, file) {}

  JpegRefusal open() override;

  /// Parses what lies below the region.
  JpegRefusal check_rest() override;

  size_t scratch_bytes() const override { return sizeof *this + planes_.scratch_bytes(); }

 private:
  /// Neighbouring MCUs of which the same blocks are wanted.
  struct Stretch {
    uint32_t mcus = 0;
    uint32_t wanted = 0;
  };

  void begin_region() override;
  bool decode_row(uint32_t mcu_row) override;

  void plan_stretches();
  bool decode_mcus(uint32_t mcu_row);
  bool enter_row(uint32_t mcu_row);
  bool leave_row(uint32_t mcu_row);
  std::optional<SeekPlace> row_leaves_at(uint32_t mcu_row) const;
  uint32_t begin_row(uint32_t mcu_row);
  bool decode_stretch(uint64_t mcus, uint32_t wanted);
  uint64_t room_for_mcus() const;
  void transform_blocks();

  SequentialScan scan_;
  JpegBlocks decoded_[kMaxOwnComponents];
  std::array<Stretch, 6> stretches_;
  size_t stretch_count_ = 0;
};

}  // namespace fastloader
