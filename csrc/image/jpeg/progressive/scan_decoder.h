#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/file.h"
#include "image/jpeg/kernels/progressive.h"
#include "image/jpeg/progressive/coefficient_row.h"
#include "image/jpeg/progressive/table.h"

namespace fastloader {

/// Decodes one scan of a progressive file, a row of the picture's MCUs at a time, behind the scans
/// before it.
class ScanDecoder {
 public:
  /// Makes the tables. Returns false if a code is none. `last` says whether no later scan looks at
  /// which coefficients of the band are not 0.
  bool open(const JpegFile& file, const ProgressiveScan& scan, bool last);

  /// `intervals` are those of ScanBytes.
  void begin(const uint8_t* const* intervals);

  /// Whether an interval between restarts begins with this row of MCUs, or the decoder can go to
  /// any row.
  bool can_begin_at(uint32_t mcu_row) const;
  void go_to(uint32_t mcu_row);

  /// Returns false if the row is damaged.
  bool decode_row(const JpegProgressiveKernels& kernels, CoefficientRow& row);

  size_t scratch_bytes() const { return tables_.capacity() * sizeof(ProgressiveTable); }

 private:
  struct Stretch {
    uint32_t first = 0;
    uint32_t end = 0;
  };

  uint64_t first_mcu(uint32_t mcu_row) const;
  void begin_interval(uint64_t interval);
  bool pass_restart();
  bool ends_in_interval() const;

  template <class Decode>
  bool in_intervals(uint64_t mcus, const Decode& decode);

  bool read_first_line(const JpegProgressiveKernels& kernels, CoefficientRow& row, uint32_t line);
  bool refine_first_line(CoefficientRow& row, uint32_t line);
  void refine_first_blocks(const uint8_t* bytes, uint64_t bit, uint64_t mcus);
  Stretch wanted_mcus(const CoefficientRow& row) const;
  void place_first(CoefficientRow& row, uint32_t line);
  void place_nowhere();

  bool decode_band_line(const JpegProgressiveKernels& kernels, CoefficientRow& row, uint32_t line);

  const JpegFile* file_ = nullptr;
  const ProgressiveScan* scan_ = nullptr;
  ScanKind kind_ = ScanKind::kFirst;
  bool last_ = false;
  std::vector<ProgressiveTable> tables_;  // kept from picture to picture
  ScanRun run_;
  int16_t nowhere_ = 0;  // where first coefficients go that nobody wants
  const uint8_t* const* intervals_ = nullptr;
  uint64_t interval_ = 0;
  uint64_t left_in_interval_ = 0;  // MCUs
};

}  // namespace fastloader
