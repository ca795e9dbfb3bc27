#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastloader {

/// Reads bits, the highest of each byte first. Up to 8 bytes behind `next` are read, and nothing is
/// checked: whoever reads knows how many bits a piece of work takes at most.
struct BitReader {
  /// The next bits, from the highest down. Below `count` of them, parts of further bytes may stand.
  uint64_t bits = 0;
  /// Of bits that have been read and not taken, modulo 64: only its six lowest bits mean anything,
  /// so that a table's whole entry can be subtracted from it.
  uint64_t count = 0;
  const uint8_t* next = nullptr;

  void begin(const uint8_t* at) {
    bits = 0;
    count = 0;
    next = at;
  }

  /// At least 56 bits are there afterwards.
  void refill() {
    uint64_t more;
    std::memcpy(&more, next, sizeof more);
    bits |= __builtin_bswap64(more) >> (count & 63);
    next += (~count >> 3) & 7;
    count |= 56;
  }

  /// The next `n` bits, 1 to 32, which stay.
  uint32_t peek(unsigned n) const { return static_cast<uint32_t>(bits >> (64 - n)); }

  /// Takes as many bits as the six lowest bits of `n` say.
  void take(uint64_t n) {
    bits <<= (n & 63);
    count -= n;
  }

  /// Passes over any number of bits, and refills.
  void pass(int64_t n) {
    const int64_t distance = n - static_cast<int64_t>(count & 63);  // of the next bit from `next`
    begin(next + (distance >> 3));
    refill();
    take(static_cast<uint64_t>(distance & 7));
  }

  /// How many bits lie between the next one and `end`: negative if the reader is past it.
  int64_t left(const uint8_t* end) const {
    return (end - next) * 8 + static_cast<int64_t>(count & 63);
  }
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "BitReader::refill() swaps bytes");

}  // namespace fastloader
