#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/augment.h"

namespace fastloader {

/// A batch's records as they lie in memory, aligned to 16 bytes.
struct Records {
  const MixRecord* mix;
  const EraseBox* boxes;

  FASTLOADER_HOST_DEVICE Records(const void* memory, size_t batch)
      : mix(reinterpret_cast<const MixRecord*>(static_cast<const uint8_t*>(memory) +
                                               kRecordsHeader)),
        boxes(reinterpret_cast<const EraseBox*>(mix + batch)) {}

  /// What the constant fill writes into a channel. Not a pointer of its own, nor an array of the
  /// grid: either costs kernels so many registers that fewer warps of them run at once.
  FASTLOADER_HOST_DEVICE float constant(uint32_t channel) const {
    return (reinterpret_cast<const float*>(mix) - kMaxChannels)[channel];
  }
};

}  // namespace fastloader
