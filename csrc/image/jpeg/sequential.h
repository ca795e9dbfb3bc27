#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "image/dispatch.h"
#include "image/jpeg/entropy_window.h"
#include "image/jpeg/file.h"
#include "image/jpeg/own.h"

namespace fastloader {

/// Decodes a region of a sequential JPEG, one row of MCUs at a time. Blocks that the region does
/// not need are parsed and not decoded, and what lies below it is not looked at. Where the file has
/// restarts, whole intervals above the region are passed over.
class SequentialJpeg : public OwnJpeg {
 public:
  using OwnJpeg::OwnJpeg;

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

  JpegRefusal make_tables();
  void plan_stretches();
  bool decode_mcus(uint32_t mcu_row);
  uint32_t begin_row(uint32_t mcu_row);
  bool decode_stretch(uint64_t mcus, uint32_t wanted);
  uint64_t room_for_mcus() const;
  bool run(size_t (*kernel)(McuRun&, size_t), uint64_t mcus);
  bool pass_over(uint64_t mcus);
  bool go_to(uint64_t mcu);
  bool jump_to_interval(uint64_t interval);
  bool pass_restart();
  bool segment_ends();
  bool rest_is_clean();
  void begin_interval(const uint8_t* at, uint64_t interval);
  void transform_blocks();

  HuffmanBuilder builder_;
  /// One for each identifier, kept from picture to picture: many bring the same ones.
  DcTable dc_[kJpegTables];
  AcTable ac_[kJpegTables];
  EntropyWindow window_;
  McuRun run_;
  JpegBlocks decoded_[kMaxOwnComponents];
  std::array<Stretch, 6> stretches_;
  size_t stretch_count_ = 0;
  uint64_t at_ = 0;                // the next MCU
  uint64_t interval_ = 0;          // the one between restarts that it lies in
  uint64_t left_in_interval_ = 0;  // MCUs
};

}  // namespace fastloader
