#include "image/jpeg/sequential.h"

#include <algorithm>
#include <cstring>

#include "image/jpeg/markers.h"

namespace fastloader {
namespace {

using namespace jpeg_marker;

/// Far from what a clean encoder writes, and so far from what overflows that one check for many
/// blocks is enough.
constexpr int32_t kMostPrediction = 1 << 24;

}  // namespace

JpegRefusal SequentialJpeg::open() {
  if (!has_jpeg_end_marker(file_.scan, static_cast<size_t>(file_.end - file_.scan))) {
    return JpegRefusal::kEnd;
  }
  return make_tables();
}

JpegRefusal SequentialJpeg::make_tables() {
  run_.blocks = 0;
  for (size_t c = 0; c < file_.components; ++c) {
    const JpegComponent& component = file_.component[c];
    DcTable& dc = dc_[component.dc];
    AcTable& ac = ac_[component.ac];
    if (!builder_.make(file_.dc[component.dc], dc) || !builder_.make(file_.ac[component.ac], ac)) {
      return JpegRefusal::kDamage;
    }
    const size_t blocks = size_t{component.sampling.horizontal} * component.sampling.vertical;
    for (size_t i = 0; i < blocks; ++i) {
      McuBlock& block = run_.block[run_.blocks++];
      block.dc = &dc;
      block.ac = &ac;
      block.component = c;
      block.factor = file_.quantization[component.quantization][0];
    }
    run_.decoded[c] = &decoded_[c];
  }
  return JpegRefusal::kNone;
}

void SequentialJpeg::begin_region() {
  plan_stretches();
  // After damage, blocks that were not finished lie there.
  if (run_.damaged) {
    for (JpegBlocks& blocks : decoded_) {
      std::memset(blocks.coefficients, 0, sizeof blocks.coefficients);
    }
  }
  for (JpegBlocks& blocks : decoded_) blocks.count = 0;
  run_.damaged = false;
  begin_interval(file_.scan, 0);
}

/// Which blocks of an MCU lie in columns that the region needs. That differs at its left and right
/// edge only.
void SequentialJpeg::plan_stretches() {
  stretch_count_ = 0;
  for (uint32_t mcu = planes_.first_mcu(); mcu < planes_.end_mcu(); ++mcu) {
    uint32_t wanted = 0;
    size_t bit = 0;
    for (size_t c = 0; c < file_.components; ++c) {
      const JpegSampling sampling = file_.component[c].sampling;
      for (uint32_t y = 0; y < sampling.vertical; ++y) {
        for (uint32_t x = 0; x < sampling.horizontal; ++x, ++bit) {
          if (planes_.needs_column(c, mcu * sampling.horizontal + x)) wanted |= 1u << bit;
        }
      }
    }
    if (stretch_count_ > 0 && stretches_[stretch_count_ - 1].wanted == wanted) {
      ++stretches_[stretch_count_ - 1].mcus;
    } else {
      stretches_[stretch_count_++] = {1, wanted};
    }
  }
}

bool SequentialJpeg::decode_row(uint32_t mcu_row) {
  if (!decode_mcus(mcu_row)) run_.damaged = true;
  return !run_.damaged;
}

bool SequentialJpeg::decode_mcus(uint32_t mcu_row) {
  const uint64_t row_begin = uint64_t{mcu_row} * file_.mcus_across;
  if (!go_to(row_begin + planes_.first_mcu())) return false;
  const uint32_t in_row = begin_row(mcu_row);
  for (size_t i = 0; i < stretch_count_; ++i) {
    if (!decode_stretch(stretches_[i].mcus, stretches_[i].wanted & in_row)) return false;
  }
  transform_blocks();
  if (mcu_row + 1 < file_.mcus_down) return !window_.overdrawn(run_.reader);
  // Whether the scan ends where its last MCU does can be seen here only.
  return rest_is_clean();
}

JpegRefusal SequentialJpeg::check_rest() {
  // Of the picture's last row, decode_row() has seen it.
  if (next_mcu_row() == file_.mcus_down || rest_is_clean()) return JpegRefusal::kNone;
  run_.damaged = true;
  return JpegRefusal::kDamage;
}

/// Goes to the scan's end. An end marker must follow, and nothing may be left before it.
bool SequentialJpeg::rest_is_clean() {
  const uint64_t mcus = uint64_t{file_.mcus_across} * file_.mcus_down;
  while (at_ < mcus) {
    if (left_in_interval_ == 0 && !pass_restart()) return false;
    if (!pass_over(std::min(mcus - at_, left_in_interval_))) return false;
  }
  if (!segment_ends()) return false;
  const uint8_t* at = behind_fill(window_.at(), file_.end);
  return at != file_.end && *at == kEndOfImage;
}

/// Says where the row's blocks go, and returns which of an MCU's blocks lie in rows that the region
/// needs.
uint32_t SequentialJpeg::begin_row(uint32_t mcu_row) {
  uint32_t wanted = 0;
  size_t bit = 0;
  for (size_t c = 0; c < file_.components; ++c) {
    const JpegSampling sampling = file_.component[c].sampling;
    for (uint32_t y = 0; y < sampling.vertical; ++y) {
      const uint32_t block_y = mcu_row * sampling.vertical + y;
      for (uint32_t x = 0; x < sampling.horizontal; ++x, ++bit) {
        McuBlock& block = run_.block[bit];
        block.samples = planes_.block(c, planes_.first_mcu() * sampling.horizontal + x, block_y);
        block.step = kJpegEdge * sampling.horizontal;
        block.stride = planes_.stride(c);
        if (planes_.needs_row(c, block_y)) wanted |= 1u << bit;
      }
    }
  }
  return wanted;
}

bool SequentialJpeg::decode_stretch(uint64_t mcus, uint32_t wanted) {
  run_.wanted = wanted;
  while (mcus > 0) {
    if (left_in_interval_ == 0 && !pass_restart()) return false;
    uint64_t some = std::min(mcus, left_in_interval_);
    some = std::min(some, room_for_mcus());
    if (some == 0) {
      transform_blocks();
      continue;
    }
    if (!run(isa_.jpeg_entropy->decode, some)) return false;
    mcus -= some;
  }
  return true;
}

uint64_t SequentialJpeg::room_for_mcus() const {
  uint64_t room = kMostRunBlocks;
  for (size_t c = 0; c < file_.components; ++c) {
    const JpegSampling sampling = file_.component[c].sampling;
    const uint64_t each = uint64_t{sampling.horizontal} * sampling.vertical;
    room = std::min(room, (kMostRunBlocks - decoded_[c].count) / each);
  }
  return room;
}

/// Lets a kernel take so many MCUs of the present interval.
bool SequentialJpeg::run(size_t (*kernel)(McuRun&, size_t), uint64_t mcus) {
  at_ += mcus;
  left_in_interval_ -= mcus;
  while (mcus > 0) {
    mcus -= kernel(run_, mcus);
    if (run_.damaged) return false;
    if (mcus > 0 && !window_.replenish(*isa_.jpeg_entropy, run_)) return false;
  }
  return std::all_of(std::begin(run_.prediction), std::end(run_.prediction),
                     [](int32_t prediction) {
                       return prediction > -kMostPrediction && prediction < kMostPrediction;
                     });
}

bool SequentialJpeg::pass_over(uint64_t mcus) {
  while (mcus > 0) {
    check_stop();
    const uint64_t some = std::min<uint64_t>(mcus, file_.mcus_across);
    if (!run(isa_.jpeg_entropy->skip, some)) return false;
    mcus -= some;
  }
  return true;
}

/// Makes an MCU of this interval or a later one the next.
bool SequentialJpeg::go_to(uint64_t mcu) {
  if (file_.restart_interval != 0 && mcu / file_.restart_interval > interval_) {
    if (!jump_to_interval(mcu / file_.restart_interval)) return false;
  }
  return pass_over(mcu - at_);
}

bool SequentialJpeg::jump_to_interval(uint64_t interval) {
  const uint8_t* at = window_.at();
  for (; interval_ < interval; ++interval_, ++at) {
    at = find_next(at, file_.end);
    if (at == nullptr || *at != restart_behind(interval_)) return false;
  }
  begin_interval(at, interval);
  return true;
}

bool SequentialJpeg::pass_restart() {
  if (!segment_ends()) return false;
  const uint8_t* at = behind_fill(window_.at(), file_.end);
  if (at == file_.end || *at != restart_behind(interval_)) return false;
  begin_interval(at + 1, interval_ + 1);
  return true;
}

/// Whether no more than the bits that fill up a byte are left before the next marker.
bool SequentialJpeg::segment_ends() {
  // A full window does not know yet that a marker follows.
  if (!window_.ended() && !window_.replenish(*isa_.jpeg_entropy, run_)) return false;
  if (!window_.ended()) return false;
  const int64_t left = window_.bits_left(run_.reader);
  return left >= 0 && left < 8;
}

void SequentialJpeg::begin_interval(const uint8_t* at, uint64_t interval) {
  interval_ = interval;
  at_ = interval * file_.restart_interval;
  left_in_interval_ = file_.restart_interval == 0 ? UINT64_MAX : file_.restart_interval;
  std::fill(std::begin(run_.prediction), std::end(run_.prediction), 0);
  window_.begin(*isa_.jpeg_entropy, at, file_.end, run_);
}

void SequentialJpeg::transform_blocks() {
  for (size_t c = 0; c < file_.components; ++c) {
    JpegBlocks& decoded = decoded_[c];
    isa_.jpeg_pixels->inverse_dct(decoded.blocks, decoded.count,
                                  file_.quantization[file_.component[c].quantization],
                                  planes_.stride(c));
    decoded.count = 0;
  }
}

}  // namespace fastloader
