#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/float_round.h"
#include "image/host_device.h"
#include "image/normalize/grid.h"

namespace fastloader::kernel_detail {

// What a thread of a kernel loads, computes with and stores.

FASTLOADER_HOST_DEVICE inline bool aligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

/// memcpy with a promised alignment is the one way to load or store a vector that is defined in
/// C++ and a single instruction on the GPU.
template <size_t kBytes>
FASTLOADER_HOST_DEVICE inline void copy_aligned(void* to, const void* from) {
  memcpy(__builtin_assume_aligned(to, kBytes), __builtin_assume_aligned(from, kBytes), kBytes);
}

template <FloatType kType>
using Bits = typename FloatBits<kType>::Type;

/// As many elements as 16 bytes hold.
template <FloatType kType>
constexpr uint32_t kVectorLength = 16 / sizeof(Bits<kType>);

template <FloatType kType>
struct alignas(16) OutVector {
  Bits<kType> elements[kVectorLength<kType>];
};

/// Coefficients in registers: an array of the grid indexed by a value known only at run time would
/// make the GPU copy the whole grid to memory first.
template <size_t kChannels>
struct Coefficients {
  float scale[kChannels];
  float bias[kChannels];
};

/// Entry k is that of channel (first + k) % kChannels, for first < kChannels.
template <size_t kChannels>
FASTLOADER_HOST_DEVICE inline Coefficients<kChannels> coefficients_from(const NormalizeGrid& grid,
                                                                        uint32_t first) {
  Coefficients<kChannels> rotated{};
  for (uint32_t k = 0; k < kChannels; ++k) {
    for (uint32_t c = 0; c < kChannels; ++c) {
      if (first == (c + kChannels - k) % kChannels) {
        rotated.scale[k] = grid.scale[c];
        rotated.bias[k] = grid.bias[c];
      }
    }
  }
  return rotated;
}

/// Byte i of the result is byte `selector >> 4 * i & 3` of `bytes`.
FASTLOADER_HOST_DEVICE inline uint32_t permuted(uint32_t bytes, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(bytes, 0, selector);
#else
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    result |= (bytes >> 8 * (selector >> 4 * i & 3) & 0xffu) << 8 * i;
  }
  return result;
#endif
}

/// kBytes bytes of the input.
template <size_t kBytes>
struct alignas(8) InBytes {
  uint32_t parts[kBytes / 4];

  /// By words of kWord bytes, which `from` is aligned to.
  template <size_t kWord>
  FASTLOADER_HOST_DEVICE void load(const uint8_t* from) {
    for (size_t i = 0; i < kBytes; i += kWord) copy_aligned<kWord>(parts + i / 4, from + i);
  }

  FASTLOADER_HOST_DEVICE float get(size_t i) const {
    const uint32_t part = parts[i / 4];
    const uint32_t byte = static_cast<uint32_t>(i % 4);
#if defined(__CUDA_ARCH__)
    // The bits of 2^23 + the byte, in one instruction. A conversion takes another one, in the pipe
    // that is the busiest here; the subtraction, which is exact, does not.
    return __uint_as_float(__byte_perm(part, 0x4b000000u, 0x7440u + byte)) - 8388608.0f;
#else
    return static_cast<float>((part >> (8 * byte)) & 0xffu);
#endif
  }

  /// Puts byte i of `other` in the place of byte i where bit i / kRepeat of `marks` is set.
  template <uint32_t kRepeat>
  FASTLOADER_HOST_DEVICE void replace(const InBytes& other, uint32_t marks) {
    for (uint32_t p = 0; p < kBytes / 4; ++p) {
      const uint32_t first = 4 * p / kRepeat;
      uint32_t selector = 0;
      for (uint32_t i = 0; i < 4; ++i) selector |= ((4 * p + i) / kRepeat - first) << 4 * i;
      // One bit in each byte of a word, by a product whose terms share no bit: i + 7 * j.
      const uint32_t bits = (marks >> first & 0xfu) * 0x00204081u & 0x01010101u;
      const uint32_t mask = permuted(bits, selector) * 0xffu;
      parts[p] ^= (parts[p] ^ other.parts[p]) & mask;
    }
  }
};

template <FloatType kType>
FASTLOADER_HOST_DEVICE inline Bits<kType> apply(float value, float scale, float bias) {
  return round_to<kType>(fmaf(value, scale, bias));
}

/// Elements from `out` to the next multiple of 16 bytes.
template <FloatType kType>
FASTLOADER_HOST_DEVICE inline uint32_t head_of(const uint8_t* out) {
  const uint32_t address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out));
  return (0u - address) % 16 / static_cast<uint32_t>(sizeof(Bits<kType>));
}

/// Where the vectors of the run of `length` elements from `out` begin and end.
template <FloatType kType>
struct RunVectors {
  size_t begin;
  size_t end;

  FASTLOADER_HOST_DEVICE RunVectors(const uint8_t* out, size_t length) {
    const size_t head = head_of<kType>(out);
    begin = head < length ? head : length;
    end = length - (length - begin) % kVectorLength<kType>;
  }
};

/// A block's part of the run of `length` elements from `out`, whatever its place and alignment. The
/// first block writes the head, the last one the tail. `element(i)` gives the bits of element i.
template <FloatType kType, uint32_t kItems, class Element>
FASTLOADER_HOST_DEVICE inline void store_run(const NormalizeGrid& grid, const Place& at,
                                             uint8_t* out, size_t length, Element element) {
  constexpr size_t kBytes = sizeof(Bits<kType>);
  constexpr uint32_t kVector = kVectorLength<kType>;
  const auto store_one = [&](size_t i) {
    const Bits<kType> bits = element(i);
    copy_aligned<kBytes>(out + i * kBytes, &bits);
  };
  const RunVectors<kType> vectors(out, length);
  if (at.block == 0 && at.lane < vectors.begin) store_one(at.lane);
  for (uint32_t i = 0; i < kItems / kVector; ++i) {
    const size_t first = vectors.begin + size_t{at.block} * kNormalizeWarp * kItems +
                         (i * kNormalizeWarp + at.lane) * kVector;
    if (first >= vectors.end) break;
    OutVector<kType> vector;
    for (size_t k = 0; k < kVector; ++k) vector.elements[k] = element(first + k);
    copy_aligned<16>(out + first * kBytes, &vector);
  }
  const size_t last = vectors.end + at.lane;
  if (at.block + 1 == grid.divisor.value() && last < length) store_one(last);
}

}  // namespace fastloader::kernel_detail
