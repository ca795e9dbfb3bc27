#include "image/jpeg/sequential.h"

#include <algorithm>
#include <cstring>

namespace fastloader {
JpegRefusal SequentialJpeg::open() {
  for (size_t c = 0; c < file_.components; ++c) scan_.run().decoded[c] = &decoded_[c];
  return scan_.open();
}

void SequentialJpeg::begin_region() {
  plan_stretches();
  // After damage, blocks that were not finished lie there.
  if (scan_.damaged()) {
    for (JpegBlocks& blocks : decoded_) {
      std::memset(blocks.coefficients, 0, sizeof blocks.coefficients);
    }
  }
  for (JpegBlocks& blocks : decoded_) blocks.count = 0;
  scan_.begin(stop());
  if (index() == nullptr) scan_.go_to_first();
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
  if (!decode_mcus(mcu_row)) scan_.set_damaged();
  return !scan_.damaged();
}

bool SequentialJpeg::decode_mcus(uint32_t mcu_row) {
  if (!enter_row(mcu_row)) return false;
  const uint32_t in_row = begin_row(mcu_row);
  for (size_t i = 0; i < stretch_count_; ++i) {
    if (!decode_stretch(stretches_[i].mcus, stretches_[i].wanted & in_row)) return false;
  }
  transform_blocks();
  return leave_row(mcu_row);
}

/// Makes the first MCU of the row that the region needs the next one.
bool SequentialJpeg::enter_row(uint32_t mcu_row) {
  const uint64_t row_begin = uint64_t{mcu_row} * file_.mcus_across;
  if (index() != nullptr) {
    const uint32_t segment = index()->segment_of(planes_.first_mcu());
    const SeekPlace from = index()->place(uint64_t{mcu_row} * index()->segments() + segment);
    const std::optional<SeekPlace> to = row_leaves_at(mcu_row);
    if (!scan_.jump(row_begin + index()->first_mcu(segment), from, to ? &*to : nullptr)) {
      return false;
    }
  }
  return scan_.go_to(row_begin + planes_.first_mcu());
}

/// Looks at how the row ends. With an index, where the next segment begins tells whether the index
/// was right about this one, which is seen before a pixel of the row is given to anybody.
bool SequentialJpeg::leave_row(uint32_t mcu_row) {
  if (index() != nullptr) {
    if (const std::optional<SeekPlace> to = row_leaves_at(mcu_row)) {
      const uint32_t end = index()->first_mcu(index()->segment_of(planes_.end_mcu() - 1) + 1);
      return scan_.pass_over(end - planes_.end_mcu()) && scan_.arrived(*to);
    }
  } else if (mcu_row + 1 < file_.mcus_down) {
    return !scan_.overdrawn();
  }
  // Whether the scan ends where its last MCU does can be seen here only.
  return scan_.rest_is_clean();
}

/// With an index: where the segment begins that follows the last one of the row that the region
/// needs. Nothing if that is the last of the picture.
std::optional<SeekPlace> SequentialJpeg::row_leaves_at(uint32_t mcu_row) const {
  const uint64_t next =
      uint64_t{mcu_row} * index()->segments() + index()->segment_of(planes_.end_mcu() - 1) + 1;
  if (next == index()->count()) return std::nullopt;
  return index()->place(next);
}

JpegRefusal SequentialJpeg::check_rest() {
  // Of the picture's last row, decode_row() has seen it.
  if (next_mcu_row() == file_.mcus_down || scan_.rest_is_clean()) return JpegRefusal::kNone;
  scan_.set_damaged();
  return JpegRefusal::kDamage;
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
        McuBlock& block = scan_.run().block[bit];
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
  scan_.run().wanted = wanted;
  while (mcus > 0) {
    const uint64_t before_restart = scan_.mcus_before_restart();
    if (before_restart == 0) return false;
    const uint64_t some = std::min({mcus, before_restart, room_for_mcus()});
    if (some == 0) {
      transform_blocks();
      continue;
    }
    if (!scan_.decode(some)) return false;
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
