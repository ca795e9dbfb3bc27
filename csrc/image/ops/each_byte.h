#pragma once

#include <cstddef>
#include <cstdint>

#include "image/ops/canvas.h"

namespace fastloader {

/// Every byte becomes change(byte). Blocks of a fixed length, since compilers turn a loop of known
/// length into vector instructions more readily than one of any length.
template <class Change>
void each_byte(Canvas& canvas, const Change& change) {
  constexpr size_t kBlock = 64;
  uint8_t* byte = canvas.pixels();
  size_t left = canvas.bytes();
  for (; left >= kBlock; left -= kBlock, byte += kBlock) {
    for (size_t i = 0; i < kBlock; ++i) byte[i] = change(byte[i]);
  }
  for (size_t i = 0; i < left; ++i) byte[i] = change(byte[i]);
}

}  // namespace fastloader
