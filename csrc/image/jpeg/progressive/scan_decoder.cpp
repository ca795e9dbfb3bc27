#include "image/jpeg/progressive/scan_decoder.h"

#include <algorithm>

namespace fastloader {
namespace {

/// Far from what a clean encoder writes, and so far from what overflows that one check for a row is
/// enough.
constexpr int32_t kMostPrediction = 1 << 24;

/// How far a reader's next byte may be ahead of the bits that it has taken.
constexpr size_t kReadAhead = 8;

}  // namespace

bool ScanDecoder::open(const JpegFile& file, const ProgressiveScan& scan, bool last) {
  file_ = &file;
  scan_ = &scan;
  kind_ = kind_of(scan);
  last_ = last;
  run_.low = scan.low;
  run_.first = scan.first;
  run_.last = scan.last;
  run_.blocks = 0;
  if (tables_.size() < scan.components) tables_.resize(scan.components);
  for (size_t i = 0; i < scan.components; ++i) {
    const ProgressiveTable* table = nullptr;
    if (kind_ != ScanKind::kFirstRefine) {
      // Two components often have the same code.
      size_t same = 0;
      while (scan.code[same].lengths != scan.code[i].lengths) ++same;
      table = &tables_[same];
      if (same == i && !tables_[i].make(scan.code[i], kind_, scan.low)) return false;
    }
    run_.table = table;
    const JpegSampling sampling = file.component[scan.component[i]].sampling;
    const size_t blocks = scan.interleaved() ? size_t{sampling.horizontal} * sampling.vertical : 1;
    for (size_t b = 0; b < blocks; ++b) run_.block[run_.blocks++] = {table, i, nullptr, 0};
  }
  return true;
}

void ScanDecoder::begin(const uint8_t* const* intervals) {
  intervals_ = intervals;
  run_.limit = intervals[scan_->intervals()] + kReadAhead;
  begin_interval(0);
}

/// How many MCUs of the scan come before this row of the picture's.
uint64_t ScanDecoder::first_mcu(uint32_t mcu_row) const {
  const JpegSampling sampling = file_->component[scan_->component[0]].sampling;
  return uint64_t{mcu_row} * (scan_->interleaved() ? 1 : sampling.vertical) * scan_->mcus_across;
}

bool ScanDecoder::can_begin_at(uint32_t mcu_row) const {
  if (mcu_row == 0 || kind_ == ScanKind::kFirstRefine) return true;
  return scan_->restart_interval != 0 && first_mcu(mcu_row) % scan_->restart_interval == 0;
}

void ScanDecoder::go_to(uint32_t mcu_row) {
  if (mcu_row == 0 || kind_ == ScanKind::kFirstRefine) return;
  begin_interval(first_mcu(mcu_row) / scan_->restart_interval);
}

void ScanDecoder::begin_interval(uint64_t interval) {
  interval_ = interval;
  left_in_interval_ = scan_->restart_interval == 0 ? UINT64_MAX : scan_->restart_interval;
  run_.reader.begin(intervals_[interval]);
  run_.reader.refill();
  run_.ended = 0;
  std::fill(std::begin(run_.prediction), std::end(run_.prediction), 0);
}

/// An interval must have no more than the bits that fill up a byte behind its last MCU.
bool ScanDecoder::pass_restart() {
  const int64_t left = run_.reader.left(intervals_[interval_ + 1]);
  if (left < 0 || left >= 8 || run_.ended > 0 || interval_ + 1 == scan_->intervals()) return false;
  begin_interval(interval_ + 1);
  return true;
}

bool ScanDecoder::ends_in_interval() const {
  return run_.reader.left(intervals_[interval_ + 1]) >= 0;
}

/// Calls `decode` with numbers of MCUs that no restart comes between.
template <class Decode>
bool ScanDecoder::in_intervals(uint64_t mcus, const Decode& decode) {
  while (mcus > 0) {
    if (left_in_interval_ == 0 && !pass_restart()) return false;
    const uint64_t some = std::min(mcus, left_in_interval_);
    if (!decode(static_cast<size_t>(some))) return false;
    left_in_interval_ -= some;
    mcus -= some;
  }
  return true;
}

bool ScanDecoder::decode_row(const JpegProgressiveKernels& kernels, CoefficientRow& row) {
  const size_t component = scan_->component[0];
  const uint32_t lines = scan_->interleaved() ? 1 : row.lines(component);
  for (uint32_t line = 0; line < lines; ++line) {
    // The picture's last MCUs may have more lines than it has blocks.
    if (!scan_->interleaved() && row.row_of(component, line) >= scan_->mcus_down) break;
    const bool sound = kind_ == ScanKind::kFirst         ? read_first_line(kernels, row, line)
                       : kind_ == ScanKind::kFirstRefine ? refine_first_line(row, line)
                                                         : decode_band_line(kernels, row, line);
    if (!sound) return false;
  }
  return ends_in_interval();
}

/// The scan's MCUs of a line of which first coefficients are wanted: the region's, whole.
ScanDecoder::Stretch ScanDecoder::wanted_mcus(const CoefficientRow& row) const {
  if (!row.in_region()) return {0, 0};
  const uint32_t each = scan_->interleaved() ? 1 : row.in_mcu(scan_->component[0]);
  return {row.planes().first_mcu() * each,
          std::min(row.planes().end_mcu() * each, scan_->mcus_across)};
}

void ScanDecoder::place_first(CoefficientRow& row, uint32_t line) {
  FirstBlock* block = run_.block;
  for (size_t i = 0; i < scan_->components; ++i) {
    const size_t component = scan_->component[i];
    const uint32_t origin = row.planes().first_mcu() * row.in_mcu(component);
    const uint32_t across = scan_->interleaved() ? row.in_mcu(component) : 1;
    const uint32_t down = scan_->interleaved() ? row.lines(component) : 1;
    for (uint32_t y = 0; y < down; ++y) {
      for (uint32_t x = 0; x < across; ++x, ++block) {
        block->to = row.block(component, origin + x, line + y);
        block->step = across * kJpegBlock;
      }
    }
  }
}

void ScanDecoder::place_nowhere() {
  for (size_t b = 0; b < run_.blocks; ++b) {
    run_.block[b].to = &nowhere_;
    run_.block[b].step = 0;
  }
}

bool ScanDecoder::read_first_line(const JpegProgressiveKernels& kernels, CoefficientRow& row,
                                  uint32_t line) {
  const auto read = [&](uint32_t mcus) {
    return in_intervals(mcus, [&](size_t some) {
      return kernels.read_first(run_, some) &&
             std::all_of(std::begin(run_.prediction), std::end(run_.prediction),
                         [](int32_t prediction) {
                           return prediction > -kMostPrediction && prediction < kMostPrediction;
                         });
    });
  };
  const Stretch wanted = wanted_mcus(row);
  place_nowhere();
  if (!read(wanted.first)) return false;
  if (wanted.end > wanted.first) {
    place_first(row, line);
    if (!read(wanted.end - wanted.first)) return false;
    place_nowhere();
  }
  return read(scan_->mcus_across - wanted.end);
}

/// Each block has one bit, so it is known where that is.
bool ScanDecoder::refine_first_line(CoefficientRow& row, uint32_t line) {
  const Stretch wanted = wanted_mcus(row);
  if (wanted.first == wanted.end) return true;
  place_first(row, line);
  const uint64_t interval_mcus =
      scan_->restart_interval == 0 ? UINT64_MAX : scan_->restart_interval;
  const uint64_t mcu =
      first_mcu(row.mcu_row()) + uint64_t{line} * scan_->mcus_across + wanted.first;
  uint64_t interval = mcu / interval_mcus;
  uint64_t at = mcu % interval_mcus;
  for (uint64_t left = wanted.end - wanted.first; left > 0; ++interval, at = 0) {
    const uint64_t some = std::min(left, interval_mcus - at);
    const uint8_t* const bytes = intervals_[interval];
    const auto there = static_cast<uint64_t>(intervals_[interval + 1] - bytes) * 8;
    if ((at + some) * run_.blocks > there) return false;
    refine_first_blocks(bytes, at * run_.blocks, some);
    left -= some;
  }
  return true;
}

void ScanDecoder::refine_first_blocks(const uint8_t* bytes, uint64_t bit, uint64_t mcus) {
  for (; mcus > 0; --mcus) {
    for (size_t b = 0; b < run_.blocks; ++b, ++bit) {
      FirstBlock& block = run_.block[b];
      const int set = bytes[bit / 8] >> (7 - bit % 8) & 1;
      *block.to = static_cast<int16_t>(*block.to | coefficient_of(set, run_.low));
      block.to += block.step;
    }
  }
}

bool ScanDecoder::decode_band_line(const JpegProgressiveKernels& kernels, CoefficientRow& row,
                                   uint32_t line) {
  const auto kernel = kind_ == ScanKind::kBand ? kernels.read_band : kernels.refine_band;
  const JpegPlanes& planes = row.planes();
  const size_t component = scan_->component[0];
  const uint32_t y = row.row_of(component, line);
  BandBlocks blocks;
  blocks.nonzero = row.nonzero(component, line);
  const auto decode = [&](uint32_t count, BlockPart wanted) {
    blocks.wanted = wanted;
    return in_intervals(count, [&](size_t some) {
      blocks.count = some;
      if (!kernel(run_, blocks)) return false;
      blocks.nonzero += some;
      if (wanted == BlockPart::kCoefficients) blocks.coefficients += some * kJpegBlock;
      return true;
    });
  };
  const BlockPart outside = last_ ? BlockPart::kNothing : BlockPart::kPlaces;
  if (y >= planes.end_row(component)) return true;
  if (!planes.needs_row(component, y)) return decode(scan_->mcus_across, outside);
  const uint32_t first = planes.first_column(component);
  const uint32_t end = planes.end_column(component);
  blocks.coefficients = row.block(component, first, line);
  if (!decode(first, outside) || !decode(end - first, BlockPart::kCoefficients)) return false;
  // Behind the region's last block nothing is wanted, from no scan.
  return y + 1 == planes.end_row(component) || decode(scan_->mcus_across - end, outside);
}

}  // namespace fastloader
