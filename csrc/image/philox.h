#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "image/host_device.h"

namespace fastloader {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
/// 128 random bits that are a pure function of a counter and a key. Replaces `words`, the counter,
/// by them.
FASTLOADER_HOST_DEVICE inline void philox4x32_rounds(uint32_t (&words)[4], uint32_t key0,
                                                     uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xd2511f53} * words[0];
    const uint64_t second = uint64_t{0xcd9e8d57} * words[2];
    words[0] = static_cast<uint32_t>(second >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(second);
    words[2] = static_cast<uint32_t>(first >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(first);
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

inline std::array<uint32_t, 4> philox4x32(const std::array<uint32_t, 4>& counter,
                                          const std::array<uint32_t, 2>& key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  philox4x32_rounds(words, key[0], key[1]);
  return {words[0], words[1], words[2], words[3]};
}

/// The random numbers of one step on one picture. They depend on nothing but the arguments: not
/// on threads, arrival order or what was drawn for other samples.
///
/// This layout is part of what "same seed, same crops" promises; changing it changes every crop:
///   key      seed, low word first
///   counter  {number of the block, stream, index's low word, index's high word}
///   stream   which step on which of the sample's pictures: draw_numbers.h
///   draws    each takes the next half of a block, {word 0, word 1} or {word 2, word 3}, low first
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index, uint32_t stream)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, stream, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)} {}

  uint64_t bits() {
    if (half_ == 2) {
      block_ = philox4x32(counter_, key_);
      ++counter_[0];
      half_ = 0;
    }
    const uint64_t low = block_[2 * half_];
    const uint64_t high = block_[2 * half_ + 1];
    ++half_;
    return low | high << 32;
  }

  /// Multiples of 2^-53 in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  double uniform(double from, double to) { return from + (to - from) * uniform(); }

  /// 0 .. count - 1, for count up to 2^32; no value is more likely than another by 2^-32 of its
  /// probability.
  uint64_t below(uint64_t count) {
    // The upper half of the 128-bit product of count, which fits 32 bits or is 2^32, and the draw.
    const uint64_t draw = bits();
    const uint64_t low = (draw & 0xffffffff) * count;
    return ((draw >> 32) * count + (low >> 32)) >> 32;
  }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  size_t half_ = 2;
};

}  // namespace fastloader
