#include "image/jpeg/progressive/decoder.h"

#include <algorithm>

namespace fastloader {

JpegRefusal ProgressiveJpeg::open() {
  const std::vector<ProgressiveScan>& scans = file_.scans;
  if (scans_.size() < scans.size()) scans_.resize(scans.size());
  for (size_t i = 0; i < scans.size(); ++i) {
    if (!scans_[i].open(file_, scans[i], is_last_of_band(i))) return JpegRefusal::kDamage;
  }
  return JpegRefusal::kNone;
}

/// Whether no later scan refines coefficients of this one.
bool ProgressiveJpeg::is_last_of_band(size_t scan) const {
  const ProgressiveScan& band = file_.scans[scan];
  return std::none_of(file_.scans.begin() + static_cast<ptrdiff_t>(scan) + 1, file_.scans.end(),
                      [&](const ProgressiveScan& later) {
                        return later.component[0] == band.component[0] && later.first > 0 &&
                               later.first <= band.last && later.last >= band.first;
                      });
}

size_t ProgressiveJpeg::scratch_bytes() const {
  size_t bytes = sizeof *this + bytes_.scratch_bytes() + row_.scratch_bytes() +
                 planes_.scratch_bytes() + scans_.capacity() * sizeof(ScanDecoder);
  for (const ScanDecoder& scan : scans_) bytes += scan.scratch_bytes();
  return bytes;
}

void ProgressiveJpeg::begin_region() {
  bytes_.fill(*isa_.jpeg_entropy, file_.scans);
  row_.begin(file_, planes_);
  for (size_t i = 0; i < file_.scans.size(); ++i) scans_[i].begin(bytes_.intervals(i));
  at_ = 0;
  pass_intervals(planes_.first_mcu_row());
}

/// Goes to the last row of MCUs, up to this one, with which an interval begins in every scan.
void ProgressiveJpeg::pass_intervals(uint32_t mcu_row) {
  const auto scans_end = scans_.begin() + static_cast<ptrdiff_t>(file_.scans.size());
  at_ = mcu_row;
  while (!std::all_of(scans_.begin(), scans_end,
                      [this](const ScanDecoder& scan) { return scan.can_begin_at(at_); })) {
    --at_;
  }
  std::for_each(scans_.begin(), scans_end, [this](ScanDecoder& scan) { scan.go_to(at_); });
}

bool ProgressiveJpeg::decode_row(uint32_t mcu_row) {
  for (; at_ < mcu_row; ++at_) {
    check_stop();
    if (!decode_scans(at_)) return false;
  }
  if (!decode_scans(at_++)) return false;
  row_.transform(*isa_.jpeg_pixels, planes_);
  return true;
}

bool ProgressiveJpeg::decode_scans(uint32_t mcu_row) {
  row_.begin_row(mcu_row);
  for (size_t i = 0; i < file_.scans.size(); ++i) {
    if (!scans_[i].decode_row(*isa_.jpeg_progressive, row_)) return false;
  }
  return true;
}

}  // namespace fastloader
