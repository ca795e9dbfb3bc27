#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/host_device.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// Written without the conversion instructions that some CPUs have: the same bits everywhere, also
// where denormal numbers are flushed to zero. The rounding mode must be the default one, as
// for the fused multiply-add before.

FASTLOADER_HOST_DEVICE inline uint32_t float32_bits(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Nearest float16, ties to even; from 65520 on infinity. A NaN stays a (quiet) NaN.
FASTLOADER_HOST_DEVICE inline uint16_t float16_bits(float value) {
  const uint32_t bits = float32_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x47800000u) {  // 2^16 and above
    return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal float16
    // The unit in the last place of 0.5 as a float32 is 2^-24, that of a subnormal float16: the
    // addition rounds, and leaves the answer at the lower end.
    float absolute = 0;
    memcpy(&absolute, &magnitude, sizeof absolute);
    return static_cast<uint16_t>(sign | (float32_bits(absolute + 0.5f) - 0x3f000000u));
  }
  // A carry out of the mantissa raises the exponent, which is what rounding up to the next power of
  // two (or to infinity) has to do.
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Nearest bfloat16, ties to even. A NaN stays a NaN, made quiet.
FASTLOADER_HOST_DEVICE inline uint16_t bfloat16_bits(float value) {
  const uint32_t bits = float32_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The bits of one output element of a given type, in an integer of its size.
template <FloatType kType>
struct FloatBits {
  using Type = uint16_t;
};
template <>
struct FloatBits<FloatType::kFloat32> {
  using Type = uint32_t;
};

#if defined(__CUDA_ARCH__)
/// The GPU's own conversions: one instruction in the place of a dozen. They give the bits of the
/// functions above, but for a NaN, which they make 0x7fff.
template <FloatType kType>
__device__ inline uint16_t round_on_device(float value) {
  uint16_t bits = 0;
  if constexpr (kType == FloatType::kFloat16) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    bits = bfloat16_bits(value);
#endif
  }
  return bits;
}
#endif

template <FloatType kType>
FASTLOADER_HOST_DEVICE inline typename FloatBits<kType>::Type round_to(float value) {
#if defined(__CUDA_ARCH__)
  if constexpr (kType != FloatType::kFloat32) return round_on_device<kType>(value);
#endif
  if constexpr (kType == FloatType::kFloat32) {
    return float32_bits(value);
  } else if constexpr (kType == FloatType::kFloat16) {
    return float16_bits(value);
  } else {
    return bfloat16_bits(value);
  }
}

}  // namespace fastloader
