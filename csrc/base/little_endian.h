#pragma once

#include <cstdint>
#include <cstring>

namespace fastloader {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie");

/// The number, or the struct of numbers, whose bytes begin there, the lowest byte of each first. It
/// may lie at any address.
template <typename Number>
Number read_little_endian(const uint8_t* at) {
  Number number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

}  // namespace fastloader
