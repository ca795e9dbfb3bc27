#pragma once

#include <cstdint>

#include "image/jpeg/kernels/inline.h"
#include "image/jpeg/kernels/progressive.h"

namespace fastloader {

/// Operations on places for ProgressiveDecoder, in plain C++.
struct PlainPlaces {
  static FASTLOADER_JPEG_INLINE uint64_t nth_of(uint64_t places, uint64_t hot) {
    if (hot == 0) return 0;
    for (; hot > 1; hot >>= 1) places &= places - 1;
    return places & (0 - places);
  }

  static FASTLOADER_JPEG_INLINE uint64_t spread(uint64_t bits, uint64_t places) {
    uint64_t spread = 0;
    for (; bits != 0; bits >>= 1, places &= places - 1) {
      spread |= places & (0 - places) & (0 - (bits & 1));
    }
    return spread;
  }

  static FASTLOADER_JPEG_INLINE void refine(int16_t* coefficients, uint64_t grown, uint64_t made,
                                            uint64_t positive, unsigned low) {
    for (; grown != 0; grown &= grown - 1) {
      int16_t& coefficient = coefficients[__builtin_ctzll(grown)];
      const int sign = coefficient < 0 ? -1 : 1;
      coefficient = static_cast<int16_t>(coefficient + coefficient_of(sign, low));
    }
    for (; made != 0; made &= made - 1) {
      const bool above = (positive & made & (0 - made)) != 0;
      coefficients[__builtin_ctzll(made)] = coefficient_of(above ? 1 : -1, low);
    }
  }
};

}  // namespace fastloader
