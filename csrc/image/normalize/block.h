#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/grid.h"
#include "image/normalize/vectors.h"

namespace fastloader {

// The part of a block that one thread makes. A block whose vectors all exist (`whole`) takes the
// short way: load the bytes, make vector after vector. The choice is the same for the 32 threads.
// All others are made element by element. `in` and `out` are where the input and the output of the
// span begin. The three kinds of blocks have the same members:
//
//   whole                the short way is possible
//   first                the first item of the thread's first vector, counted from the span's start
//   aligned_in(in)       load() may be called
//   load(in)             the bytes of all vectors; get(v, c, i) is value i of vector v in plane c,
//                        replace(other, marks) takes those of column v * kVector + i from others
//                        where that bit is set
//   coefficients(grid)   of which entry(v, c, i) is that value's
//   store(out, element)  element(v, c, i) gives the value's bits
//   by_elements(...)     normalises whatever the block's place and alignment

/// NHWC -> NCHW.
template <FloatType kType, size_t kChannels>
class SplitBlock {
 public:
  static constexpr FloatType kOutType = kType;
  static constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  static constexpr uint32_t kItems = normalize_items(kChannels, Layout::kNhwc, Layout::kNchw);
  static constexpr uint32_t kVectors = kItems / kVector;
  static constexpr uint32_t kLength = kNormalizeWarp * kItems;

  struct Bytes {
    kernel_detail::InBytes<kVector * kChannels> pixels[kVectors];
    FASTLOADER_HOST_DEVICE float get(size_t v, size_t c, size_t i) const {
      return pixels[v].get(i * kChannels + c);
    }
    FASTLOADER_HOST_DEVICE void replace(const Bytes& other, uint32_t marks) {
      for (uint32_t v = 0; v < kVectors; ++v) {
        pixels[v].template replace<kChannels>(other.pixels[v], marks >> v * kVector);
      }
    }
  };

  FASTLOADER_HOST_DEVICE SplitBlock(const NormalizeGrid& grid, const Place& at, const uint8_t* out)
      : first(size_t{at.block} * kLength + at.lane * kVector),
        // Then every plane starts at a multiple of 16 bytes.
        whole(grid.pixels % kVector == 0 && kernel_detail::aligned(out, 16) &&
              size_t{at.block} * kLength + kLength <= grid.pixels),
        plane_bytes_(grid.pixels * kBytes) {}

  FASTLOADER_HOST_DEVICE static bool aligned_in(const uint8_t* in) {
    return kernel_detail::aligned(in, kVector);
  }

  FASTLOADER_HOST_DEVICE Bytes load(const uint8_t* in) const {
    Bytes bytes;
    for (uint32_t v = 0; v < kVectors; ++v) {
      bytes.pixels[v].template load<kVector>(in + from(v));
    }
    return bytes;
  }

  FASTLOADER_HOST_DEVICE static kernel_detail::Coefficients<kChannels> coefficients(
      const NormalizeGrid& grid) {
    return kernel_detail::coefficients_from<kChannels>(grid, 0);
  }
  FASTLOADER_HOST_DEVICE static constexpr size_t entry(size_t, size_t c, size_t) { return c; }

  template <class Element>
  FASTLOADER_HOST_DEVICE void store(uint8_t* out, Element element) const {
    out += first * kBytes;
    for (size_t c = 0; c < kChannels; ++c) {
      for (uint32_t v = 0; v < kVectors; ++v) {
        kernel_detail::OutVector<kType> vector;
        for (size_t i = 0; i < kVector; ++i) vector.elements[i] = element(v, c, i);
        kernel_detail::copy_aligned<16>(out + v * kNormalizeWarp * 16, &vector);
      }
      out += plane_bytes_;
    }
  }

  FASTLOADER_HOST_DEVICE static void by_elements(const NormalizeGrid& grid, const Place& at,
                                                 const uint8_t* in, uint8_t* out) {
    for (size_t c = 0; c < kChannels; ++c) {
      kernel_detail::store_run<kType, kItems>(
          grid, at, out + c * grid.pixels * kBytes, grid.pixels, [&](size_t pixel) {
            return kernel_detail::apply<kType>(in[pixel * kChannels + c], grid.scale[c],
                                               grid.bias[c]);
          });
    }
  }

  const size_t first;
  const bool whole;

 private:
  static constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);

  FASTLOADER_HOST_DEVICE size_t from(uint32_t v) const {
    return (first + v * kNormalizeWarp * kVector) * kChannels;
  }

  const size_t plane_bytes_;
};

/// Whether the vectors of an interleaved output start with several channels. If not, each starts
/// with the same one: with the first, unless the output is aligned to less than a pixel.
template <FloatType kType, size_t kChannels>
constexpr bool kRotates = kernel_detail::kVectorLength<kType> % kChannels != 0;

/// NCHW -> NCHW and NHWC -> NHWC.
template <FloatType kType, size_t kChannels, Layout kLayout>
class FlatBlock {
 public:
  static constexpr FloatType kOutType = kType;
  static constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  static constexpr uint32_t kItems = normalize_items(kChannels, kLayout, kLayout);
  static constexpr uint32_t kVectors = kItems / kVector;
  static constexpr uint32_t kLength = kNormalizeWarp * kItems;

  struct Bytes {
    kernel_detail::InBytes<kVector> words[kVectors];
    FASTLOADER_HOST_DEVICE float get(size_t v, size_t, size_t i) const { return words[v].get(i); }
    FASTLOADER_HOST_DEVICE void replace(const Bytes& other, uint32_t marks) {
      for (uint32_t v = 0; v < kVectors; ++v) {
        words[v].template replace<1>(other.words[v], marks >> v * kVector);
      }
    }
  };

  FASTLOADER_HOST_DEVICE FlatBlock(const NormalizeGrid& grid, const Place& at, const uint8_t* out)
      : FlatBlock(grid, at, kernel_detail::head_of<kType>(out)) {}

  FASTLOADER_HOST_DEVICE bool aligned_in(const uint8_t* in) const {
    return kernel_detail::aligned(in + head_, kVector);
  }

  FASTLOADER_HOST_DEVICE Bytes load(const uint8_t* in) const {
    Bytes bytes;
    for (uint32_t v = 0; v < kVectors; ++v) {
      bytes.words[v].template load<kVector>(in + first + v * kNormalizeWarp * kVector);
    }
    return bytes;
  }

  FASTLOADER_HOST_DEVICE kernel_detail::Coefficients<kChannels> coefficients(
      const NormalizeGrid& grid) const {
    return kernel_detail::coefficients_from<kChannels>(grid, channel_);
  }
  FASTLOADER_HOST_DEVICE static constexpr size_t entry(size_t v, size_t, size_t i) {
    return kPlanes ? 0 : (v * kNormalizeWarp * kVector + i) % kChannels;
  }

  template <class Element>
  FASTLOADER_HOST_DEVICE void store(uint8_t* out, Element element) const {
    for (uint32_t v = 0; v < kVectors; ++v) {
      kernel_detail::OutVector<kType> vector;
      for (size_t i = 0; i < kVector; ++i) vector.elements[i] = element(v, 0, i);
      kernel_detail::copy_aligned<16>(out + first * kBytes + v * kNormalizeWarp * 16, &vector);
    }
  }

  FASTLOADER_HOST_DEVICE static void by_elements(const NormalizeGrid& grid, const Place& at,
                                                 const uint8_t* in, uint8_t* out) {
    kernel_detail::store_run<kType, kItems>(grid, at, out, grid.span_length, [&](size_t item) {
      const auto k = kernel_detail::coefficients_from<kChannels>(
          grid, static_cast<uint32_t>((kPlanes ? at.span : item) % kChannels));
      return kernel_detail::apply<kType>(in[item], k.scale[0], k.bias[0]);
    });
  }

 private:
  static constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  static constexpr bool kPlanes = kLayout == Layout::kNchw;

  FASTLOADER_HOST_DEVICE FlatBlock(const NormalizeGrid& grid, const Place& at, uint32_t head)
      : first(size_t{at.block} * kLength + head + at.lane * kVector),
        whole((at.block != 0 || head == 0) &&
              (kPlanes || kRotates<kType, kChannels> || head % kChannels == 0) &&
              size_t{at.block} * kLength + head + kLength <= grid.span_length),
        head_(head),
        channel_(kPlanes                      ? at.span % kChannels
                 : kRotates<kType, kChannels> ? (head + at.lane * kVector) % kChannels
                                              : 0) {}

 public:
  const size_t first;
  const bool whole;

 private:
  const uint32_t head_;
  const uint32_t channel_;
};

/// NCHW -> NHWC. The bytes are loaded one by one: neighbouring threads read neighbouring ones, and
/// their words would have to be taken apart and put together.
template <FloatType kType, size_t kChannels>
class MergeBlock {
 public:
  static constexpr FloatType kOutType = kType;
  static constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  static constexpr uint32_t kItems = normalize_items(kChannels, Layout::kNchw, Layout::kNhwc);
  static constexpr uint32_t kVectors = kItems / kVector;
  static constexpr uint32_t kLength = kNormalizeWarp * kItems;

  struct Bytes {
    uint8_t bytes[kItems];
    FASTLOADER_HOST_DEVICE float get(size_t v, size_t, size_t i) const {
      return bytes[v * kVector + i];
    }
    FASTLOADER_HOST_DEVICE void replace(const Bytes& other, uint32_t marks) {
      for (uint32_t i = 0; i < kItems; ++i) {
        if ((marks >> i & 1) != 0) bytes[i] = other.bytes[i];
      }
    }
  };

  FASTLOADER_HOST_DEVICE MergeBlock(const NormalizeGrid& grid, const Place& at, const uint8_t* out)
      : MergeBlock(grid, at, kernel_detail::head_of<kType>(out)) {}

  FASTLOADER_HOST_DEVICE static bool aligned_in(const uint8_t*) { return true; }

  FASTLOADER_HOST_DEVICE Bytes load(const uint8_t* in) const {
    // Element j of the thread comes from byte j / kChannels at sources[j % kChannels].
    in += block_ * (kLength / kChannels) + start_ / kChannels;
    const uint8_t* sources[kChannels];
    for (uint32_t k = 0; k < kChannels; ++k) {
      const bool next = channel_ + k >= kChannels;
      sources[k] = in + (channel_ + k - (next ? kChannels : 0)) * pixels_ + (next ? 1 : 0);
    }
    Bytes loaded;
    for (uint32_t i = 0; i < kItems; ++i) {
      const uint32_t j = i / kVector * kNormalizeWarp * kVector + i % kVector;
      loaded.bytes[i] = sources[j % kChannels][j / kChannels];
    }
    return loaded;
  }

  FASTLOADER_HOST_DEVICE kernel_detail::Coefficients<kChannels> coefficients(
      const NormalizeGrid& grid) const {
    return kernel_detail::coefficients_from<kChannels>(grid, channel_);
  }
  FASTLOADER_HOST_DEVICE static constexpr size_t entry(size_t v, size_t, size_t i) {
    return (v * kNormalizeWarp * kVector + i) % kChannels;
  }

  template <class Element>
  FASTLOADER_HOST_DEVICE void store(uint8_t* out, Element element) const {
    out += first * kBytes;
    for (uint32_t v = 0; v < kVectors; ++v) {
      kernel_detail::OutVector<kType> vector;
      for (size_t i = 0; i < kVector; ++i) vector.elements[i] = element(v, 0, i);
      kernel_detail::copy_aligned<16>(out + v * kNormalizeWarp * 16, &vector);
    }
  }

  FASTLOADER_HOST_DEVICE static void by_elements(const NormalizeGrid& grid, const Place& at,
                                                 const uint8_t* in, uint8_t* out) {
    kernel_detail::store_run<kType, kItems>(grid, at, out, grid.span_length, [&](size_t item) {
      const size_t pixel = item / kChannels;
      const size_t channel = item - pixel * kChannels;
      const auto k =
          kernel_detail::coefficients_from<kChannels>(grid, static_cast<uint32_t>(channel));
      return kernel_detail::apply<kType>(in[channel * grid.pixels + pixel], k.scale[0], k.bias[0]);
    });
  }

 private:
  static constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);

  FASTLOADER_HOST_DEVICE MergeBlock(const NormalizeGrid& grid, const Place& at, uint32_t head)
      : first(size_t{at.block} * kLength + head + at.lane * kVector),
        whole((at.block != 0 || head == 0) &&
              (kRotates<kType, kChannels> || head % kChannels == 0) &&
              size_t{at.block} * kLength + head + kLength <= grid.span_length),
        pixels_(grid.pixels),
        block_(at.block),
        start_(head + at.lane * kVector),
        channel_(kRotates<kType, kChannels> ? start_ % kChannels : 0) {}

 public:
  const size_t first;
  const bool whole;

 private:
  const size_t pixels_;
  const size_t block_;
  const uint32_t start_;
  const uint32_t channel_;
};

namespace kernel_detail {

template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
struct BlockOf {
  using Type = FlatBlock<kType, kChannels, kIn>;
};
template <FloatType kType, size_t kChannels>
struct BlockOf<kType, kChannels, Layout::kNhwc, Layout::kNchw> {
  using Type = SplitBlock<kType, kChannels>;
};
template <FloatType kType, size_t kChannels>
struct BlockOf<kType, kChannels, Layout::kNchw, Layout::kNhwc> {
  using Type = MergeBlock<kType, kChannels>;
};

}  // namespace kernel_detail

/// The blocks of one output type, number of channels and pair of layouts.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
using Block = typename kernel_detail::BlockOf<kType, kChannels, kIn, kOut>::Type;

/// Normalises the bytes of a whole block.
template <class Kind>
FASTLOADER_HOST_DEVICE inline void normalize_whole(const NormalizeGrid& grid, const Kind& block,
                                                   const typename Kind::Bytes& bytes,
                                                   uint8_t* out) {
  const auto k = block.coefficients(grid);
  block.store(out, [&](size_t v, size_t c, size_t i) {
    const size_t entry = Kind::entry(v, c, i);
    return kernel_detail::apply<Kind::kOutType>(bytes.get(v, c, i), k.scale[entry], k.bias[entry]);
  });
}

/// Normalises a thread's part of the span whose input begins at `in` and whose output at `out`.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
FASTLOADER_HOST_DEVICE inline void normalize_block(const NormalizeGrid& grid, const Place& at,
                                                   const uint8_t* in, uint8_t* out) {
  using Kind = Block<kType, kChannels, kIn, kOut>;
  const Kind block(grid, at, out);
  if (block.whole && block.aligned_in(in)) {
    normalize_whole(grid, block, block.load(in), out);
  } else {
    Kind::by_elements(grid, at, in, out);
  }
}

}  // namespace fastloader
