#pragma once

#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/augment.h"
#include "image/philox.h"

namespace fastloader {

constexpr uint32_t kPerBoxOperation = 16;
constexpr uint32_t kPerElementOperation = 17;

/// Where an element's random bits are: a block of them, which neighbours share.
FASTLOADER_HOST_DEVICE inline uint32_t deviate_block(uint32_t element) { return element / 8; }

/// The random bits of a block; see augment.h.
FASTLOADER_HOST_DEVICE inline void deviate_bits(const uint32_t (&key)[2], uint32_t operation,
                                                uint32_t block, uint32_t (&words)[4]) {
  words[0] = block;
  words[1] = operation;
  words[2] = key[0];
  words[3] = key[1];
  philox4x32_rounds(words, 0, 0);
}

/// The normal deviate of an element of the block. `table` is kNormalTable, or the device's copy.
FASTLOADER_HOST_DEVICE inline float deviate(const int32_t* table, const uint32_t (&words)[4],
                                            uint32_t element) {
  // Not words[k]: an array indexed by what is known only at run time leaves the registers.
  const uint32_t k = element / 2 % 4;
  const uint32_t word = k == 0 ? words[0] : k == 1 ? words[1] : k == 2 ? words[2] : words[3];
  const uint32_t bits = element % 2 == 0 ? word : word >> 16;
  // Exact: a whole number below 2^24, times a power of two.
  const float magnitude = static_cast<float>(table[bits % kNormalTableSize]) * 0x1p-16f;
  return (bits & kNormalTableSize) != 0 ? -magnitude : magnitude;
}

/// The deviates of one operation on the image that `key` is of, asked for one after the other: a
/// block's bits are kept for the next element.
class Deviates {
 public:
  Deviates(const int32_t* table, const uint32_t (&key)[2], uint32_t operation)
      : table_(table), key_(key), operation_(operation) {}

  float get(uint32_t element) {
    const uint32_t block = deviate_block(element);
    if (!known_ || block != block_) {
      deviate_bits(key_, operation_, block, words_);
      block_ = block;
      known_ = true;
    }
    return deviate(table_, words_, element);
  }

 private:
  const int32_t* table_;
  const uint32_t (&key_)[2];
  uint32_t operation_;
  uint32_t words_[4] = {};
  uint32_t block_ = 0;
  bool known_ = false;
};

}  // namespace fastloader
