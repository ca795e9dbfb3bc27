#include "image/jpeg/seek/index.h"

#include "base/little_endian.h"
#include "base/xxh3.h"

namespace fastloader {
namespace {

int32_t with_sign(uint64_t bits, unsigned width) {
  if (width == 0) return 0;
  const unsigned above = 64 - width;
  return static_cast<int32_t>(static_cast<int64_t>(bits << above) >> above);
}

}  // namespace

bool SeekIndex::open(const uint8_t* index, size_t index_size, const JpegFile& file,
                     size_t file_size, uint64_t hash) {
  if (index_size < kSeekHeaderBytes + kSeekChecksumBytes || index[0] != kSeekVersion) return false;
  segments_ = index[1];
  position_bits_ = index[2];
  mcus_across_ = read_little_endian<uint16_t>(index + 8);
  mcus_down_ = read_little_endian<uint16_t>(index + 10);
  if (index[3] != file.components || index[7] != 0 || mcus_across_ != file.mcus_across ||
      mcus_down_ != file.mcus_down || read_little_endian<uint32_t>(index + 12) != file_size ||
      read_little_endian<uint64_t>(index + 16) != hash) {
    return false;
  }
  if (segments_ == 0 || segments_ > mcus_across_ || position_bits_ > kMostPositionBits) {
    return false;
  }
  entry_bits_ = position_bits_;
  for (size_t c = 0; c < kMaxOwnComponents; ++c) {
    prediction_bits_[c] = index[4 + c];
    if (prediction_bits_[c] > kMostPredictionBits) return false;
    entry_bits_ += prediction_bits_[c];
  }
  const uint64_t entry_bytes = (count() * entry_bits_ + 7) / 8;
  if (index_size != kSeekHeaderBytes + entry_bytes + kSeekChecksumBytes) return false;
  const size_t checked = index_size - kSeekChecksumBytes;
  if (read_little_endian<uint64_t>(index + checked) != xxh3(index, checked)) return false;
  entries_ = index + kSeekHeaderBytes;
  return true;
}

uint32_t SeekIndex::segment_of(uint32_t mcu) const {
  // Segments differ by one MCU at most, so the quotient is the segment or the one before it.
  const auto segment = static_cast<uint32_t>(uint64_t{mcu} * segments_ / mcus_across_);
  return first_mcu(segment + 1) <= mcu ? segment + 1 : segment;
}

SeekPlace SeekIndex::place(uint64_t segment) const {
  SeekPlace place;
  uint64_t at = segment * entry_bits_;
  place.bit = bits(at, position_bits_);
  at += position_bits_;
  for (size_t c = 0; c < kMaxOwnComponents; ++c) {
    place.prediction[c] = with_sign(bits(at, prediction_bits_[c]), prediction_bits_[c]);
    at += prediction_bits_[c];
  }
  return place;
}

/// The field of that width that begins at a bit, counted from the lowest of the first byte on. The
/// eight bytes that are read end within the checksum at the latest.
uint64_t SeekIndex::bits(uint64_t at, unsigned width) const {
  const uint64_t word = read_little_endian<uint64_t>(entries_ + at / 8);
  return word >> (at % 8) & ((uint64_t{1} << width) - 1);
}

}  // namespace fastloader
