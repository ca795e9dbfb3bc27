#pragma once

#include "image/ops/float_lanes.h"

namespace fastloader {

/// Image.blend of Pillow: `first` for a factor of 0, `second` for 1, clipped beyond them.
///
/// Pillow clips only where the factor is outside 0 and 1, and copies for 0 and 1. Neither needs a
/// case of its own: between 0 and 1 nothing can be clipped, since rounding keeps the order of
/// numbers, and differences of bytes are exact.
inline FloatLanes blend(const FloatLanes& first, const FloatLanes& second,
                        const FloatLanes& factor) {
  return first + factor * (second - first);
}

}  // namespace fastloader
