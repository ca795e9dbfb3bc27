#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/float_round.h"
#include "image/host_device.h"
#include "image/normalize/divisor.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// The body of the GPU kernel, as a function of (grid, addresses, thread index). The CUDA kernel
// calls it once per thread and the host twin in a loop, over the same grid.
//
//   const NormalizeGrid grid = make_normalize_grid(spec);
//   visit_normalize_kernel(spec, [&](auto kernel) {
//     for (size_t thread = 0; thread < grid.threads(); ++thread) kernel(grid, in, out, thread);
//   });
//
// The output is cut into spans, a span into blocks, and a block belongs to 32 neighbouring threads,
// one warp: warp = thread / 32, span = warp / blocks_per_span, block = warp % blocks_per_span,
// lane = thread % 32.
//
//   layouts        a span is                    an item of it is     and is written to
//   NHWC -> NCHW   an image                     a pixel              every plane of the image
//   NCHW -> NCHW   a plane                      an element           the same position
//   NHWC -> NHWC   the batch                    an element           the same position
//   NCHW -> NHWC   an image                     an element           the same position
//
// A run is what a span writes to consecutive addresses: a plane of the output, or the span. It has
// a head of single elements up to the first multiple of 16 bytes, vectors of 16 bytes, and a tail
// of single elements. Vector number v of a block is that of lane v % 32, so that the stores of a
// warp cover consecutive addresses, and a lane's next vector has the same distance in every thread:
// which channels it starts with follows from the first one's at compile time. The block's length is
// a multiple of the number of channels for the same reason.
//
// A block whose vectors all exist, and whose input has the alignment that its loads need, takes the
// short way; the choice is the same for the 32 threads. All others go through store_run().

constexpr uint32_t kNormalizeWarp = 32;

/// Items that a thread makes: enough to be worth the arithmetic before the first load.
FASTLOADER_HOST_DEVICE constexpr uint32_t normalize_items(size_t channels, Layout in, Layout out) {
  if (channels > 1 && in == Layout::kNhwc && out == Layout::kNchw) return 8;
  return channels == 3 ? 24 : 16;
}

struct NormalizeGrid {
  size_t spans = 0;
  size_t span_length = 0;  // in items
  size_t blocks_per_span = 0;
  size_t pixels = 0;   // of an image
  uint32_t warps = 0;  // below 2^31: the backends refuse more, as of 2^31 images of one pixel
  Divisor divisor{};   // by blocks_per_span
  float scale[kMaxChannels] = {};
  float bias[kMaxChannels] = {};

  /// 0 when there is nothing to do: a CUDA grid must not be empty, so don't launch then.
  size_t threads() const { return spans * blocks_per_span * kNormalizeWarp; }
};

/// Expects a spec that passed validate().
inline NormalizeGrid make_normalize_grid(const NormalizeSpec& spec) {
  const size_t channels = static_cast<size_t>(spec.channels);
  NormalizeGrid grid;
  grid.pixels = spec.pixels_per_image();
  if (channels == 1 || (spec.in_layout == Layout::kNhwc && spec.out_layout == Layout::kNhwc)) {
    grid.spans = 1;
    grid.span_length = spec.in_bytes();
  } else if (spec.out_layout == Layout::kNhwc) {
    grid.spans = spec.batch;
    grid.span_length = grid.pixels * channels;
  } else {
    grid.spans = spec.in_layout == Layout::kNchw ? spec.batch * channels : spec.batch;
    grid.span_length = grid.pixels;
  }
  const size_t block = kNormalizeWarp * normalize_items(channels, spec.in_layout, spec.out_layout);
  grid.blocks_per_span = (grid.span_length + block - 1) / block;
  grid.warps = static_cast<uint32_t>(grid.spans * grid.blocks_per_span);
  if (grid.warps != 0) grid.divisor = Divisor(static_cast<uint32_t>(grid.blocks_per_span));
  for (size_t c = 0; c < channels; ++c) {
    grid.scale[c] = spec.scale[c];
    grid.bias[c] = spec.bias[c];
  }
  return grid;
}

namespace kernel_detail {

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

/// kBytes bytes of the input, loaded as words of kWord.
template <size_t kBytes, size_t kWord>
struct alignas(kWord) InBytes {
  uint32_t parts[kBytes / 4];

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
};

template <FloatType kType>
FASTLOADER_HOST_DEVICE inline Bits<kType> apply(float value, float scale, float bias) {
  return round_to<kType>(fmaf(value, scale, bias));
}

/// Whether the vectors of an interleaved output start with several channels. If not, each starts
/// with the same one: with the first, unless the output is aligned to less than a pixel.
template <FloatType kType, size_t kChannels>
constexpr bool kRotates = kVectorLength<kType> % kChannels != 0;

/// The part of the grid that a thread works on.
struct Place {
  uint32_t span;
  uint32_t block;
  uint32_t lane;
};

template <bool kOneSpan>
FASTLOADER_HOST_DEVICE inline Place place_of(const NormalizeGrid& grid, size_t thread) {
  const uint32_t warp = static_cast<uint32_t>(thread / kNormalizeWarp);
  const uint32_t lane = static_cast<uint32_t>(thread % kNormalizeWarp);
  if (kOneSpan) return {0, warp, lane};
  const uint32_t span = grid.divisor.quotient(warp);
  return {span, warp - span * grid.divisor.value(), lane};
}

/// Elements from `out` to the next multiple of 16 bytes.
template <FloatType kType>
FASTLOADER_HOST_DEVICE inline uint32_t head_of(const uint8_t* out) {
  const uint32_t address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out));
  return (0u - address) % 16 / static_cast<uint32_t>(sizeof(Bits<kType>));
}

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
  const size_t gap = head_of<kType>(out);
  const size_t head = gap < length ? gap : length;
  if (at.block == 0 && at.lane < head) store_one(at.lane);
  const size_t tail = length - (length - head) % kVector;
  for (uint32_t i = 0; i < kItems / kVector; ++i) {
    const size_t first = head + size_t{at.block} * kNormalizeWarp * kItems +
                         (i * kNormalizeWarp + at.lane) * kVector;
    if (first >= tail) break;
    OutVector<kType> vector;
    for (size_t k = 0; k < kVector; ++k) vector.elements[k] = element(first + k);
    copy_aligned<16>(out + first * kBytes, &vector);
  }
  if (at.block + 1 == grid.divisor.value() && tail + at.lane < length) store_one(tail + at.lane);
}

}  // namespace kernel_detail

/// NHWC -> NCHW: an item is a pixel.
template <FloatType kType, size_t kChannels>
FASTLOADER_HOST_DEVICE inline void normalize_split_thread(const NormalizeGrid& grid,
                                                          const uint8_t* in, uint8_t* out,
                                                          size_t thread) {
  constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  constexpr uint32_t kItems = normalize_items(kChannels, Layout::kNhwc, Layout::kNchw);
  constexpr uint32_t kVectors = kItems / kVector;
  constexpr uint32_t kBlock = kNormalizeWarp * kItems;
  const kernel_detail::Place at = kernel_detail::place_of<false>(grid, thread);
  const size_t block = size_t{at.block} * kBlock;
  const size_t image = at.span * grid.pixels * kChannels;
  // Then every plane starts at a multiple of 16 bytes, and every image at one of kVector.
  const bool even = grid.pixels % kVector == 0 && kernel_detail::aligned(out, 16) &&
                    kernel_detail::aligned(in, kVector);
  if (even && block + kBlock <= grid.pixels) {
    const size_t first = block + at.lane * kVector;
    in += image + first * kChannels;
    out += (image + first) * kBytes;
    kernel_detail::InBytes<kVector * kChannels, kVector> pixels[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) {
      pixels[v].load(in + v * kNormalizeWarp * kVector * kChannels);
    }
    for (size_t c = 0; c < kChannels; ++c) {
      for (uint32_t v = 0; v < kVectors; ++v) {
        kernel_detail::OutVector<kType> vector;
        for (size_t i = 0; i < kVector; ++i) {
          vector.elements[i] = kernel_detail::apply<kType>(pixels[v].get(i * kChannels + c),
                                                           grid.scale[c], grid.bias[c]);
        }
        kernel_detail::copy_aligned<16>(out + v * kNormalizeWarp * 16, &vector);
      }
      out += grid.pixels * kBytes;
    }
    return;
  }
  in += image;
  out += image * kBytes;
  for (size_t c = 0; c < kChannels; ++c) {
    kernel_detail::store_run<kType, kItems>(
        grid, at, out + c * grid.pixels * kBytes, grid.pixels, [&](size_t pixel) {
          return kernel_detail::apply<kType>(in[pixel * kChannels + c], grid.scale[c],
                                             grid.bias[c]);
        });
  }
}

/// NCHW -> NCHW and NHWC -> NHWC: an item is an element.
template <FloatType kType, size_t kChannels, Layout kLayout>
FASTLOADER_HOST_DEVICE inline void normalize_flat_thread(const NormalizeGrid& grid,
                                                         const uint8_t* in, uint8_t* out,
                                                         size_t thread) {
  constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  constexpr bool kPlanes = kLayout == Layout::kNchw;
  constexpr bool kRotates = kernel_detail::kRotates<kType, kChannels>;
  constexpr uint32_t kItems = normalize_items(kChannels, kLayout, kLayout);
  constexpr uint32_t kVectors = kItems / kVector;
  constexpr uint32_t kBlock = kNormalizeWarp * kItems;
  const kernel_detail::Place at = kernel_detail::place_of<!kPlanes>(grid, thread);
  const size_t span = at.span * grid.span_length;
  const uint32_t head = kernel_detail::head_of<kType>(out + span * kBytes);
  const size_t block = size_t{at.block} * kBlock + head;
  const bool simple =
      (at.block != 0 || head == 0) && (kPlanes || kRotates || head % kChannels == 0);
  if (simple && block + kBlock <= grid.span_length &&
      kernel_detail::aligned(in + span + head, kVector)) {
    const size_t first = span + block + at.lane * kVector;
    kernel_detail::InBytes<kVector, kVector> words[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) {
      words[v].load(in + first + v * kNormalizeWarp * kVector);
    }
    const auto k = kernel_detail::coefficients_from<kChannels>(
        grid, kPlanes    ? at.span % kChannels
              : kRotates ? (head + at.lane * kVector) % kChannels
                         : 0);
    for (uint32_t v = 0; v < kVectors; ++v) {
      kernel_detail::OutVector<kType> vector;
      for (size_t i = 0; i < kVector; ++i) {
        const size_t entry = kPlanes ? 0 : (v * kNormalizeWarp * kVector + i) % kChannels;
        vector.elements[i] =
            kernel_detail::apply<kType>(words[v].get(i), k.scale[entry], k.bias[entry]);
      }
      kernel_detail::copy_aligned<16>(out + first * kBytes + v * kNormalizeWarp * 16, &vector);
    }
    return;
  }
  in += span;
  kernel_detail::store_run<kType, kItems>(
      grid, at, out + span * kBytes, grid.span_length, [&](size_t item) {
        const auto k = kernel_detail::coefficients_from<kChannels>(
            grid, static_cast<uint32_t>((kPlanes ? at.span : item) % kChannels));
        return kernel_detail::apply<kType>(in[item], k.scale[0], k.bias[0]);
      });
}

/// NCHW -> NHWC: an item is an element. Its bytes are loaded one by one: neighbouring threads read
/// neighbouring ones, and their words would have to be taken apart and put together.
template <FloatType kType, size_t kChannels>
FASTLOADER_HOST_DEVICE inline void normalize_merge_thread(const NormalizeGrid& grid,
                                                          const uint8_t* in, uint8_t* out,
                                                          size_t thread) {
  constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  constexpr uint32_t kVector = kernel_detail::kVectorLength<kType>;
  constexpr bool kRotates = kernel_detail::kRotates<kType, kChannels>;
  constexpr uint32_t kItems = normalize_items(kChannels, Layout::kNchw, Layout::kNhwc);
  constexpr uint32_t kVectors = kItems / kVector;
  constexpr uint32_t kBlock = kNormalizeWarp * kItems;
  const kernel_detail::Place at = kernel_detail::place_of<false>(grid, thread);
  const size_t image = at.span * grid.span_length;
  in += image;
  out += image * kBytes;
  const uint32_t head = kernel_detail::head_of<kType>(out);
  const size_t block = size_t{at.block} * kBlock + head;
  const bool simple = (at.block != 0 || head == 0) && (kRotates || head % kChannels == 0);
  if (simple && block + kBlock <= grid.span_length) {
    // Element j of the lane comes from byte j / kChannels at sources[j % kChannels].
    const uint32_t start = head + at.lane * kVector;
    const uint32_t channel = kRotates ? start % kChannels : 0;
    in += size_t{at.block} * (kBlock / kChannels) + start / kChannels;
    const uint8_t* sources[kChannels];
    for (uint32_t k = 0; k < kChannels; ++k) {
      const bool next = channel + k >= kChannels;
      sources[k] = in + (channel + k - (next ? kChannels : 0)) * grid.pixels + (next ? 1 : 0);
    }
    uint8_t bytes[kItems];
    for (uint32_t i = 0; i < kItems; ++i) {
      const uint32_t j = i / kVector * kNormalizeWarp * kVector + i % kVector;
      bytes[i] = sources[j % kChannels][j / kChannels];
    }
    const auto k = kernel_detail::coefficients_from<kChannels>(grid, channel);
    out += (block + at.lane * kVector) * kBytes;
    for (uint32_t v = 0; v < kVectors; ++v) {
      kernel_detail::OutVector<kType> vector;
      for (size_t i = 0; i < kVector; ++i) {
        const size_t entry = (v * kNormalizeWarp * kVector + i) % kChannels;
        vector.elements[i] =
            kernel_detail::apply<kType>(bytes[v * kVector + i], k.scale[entry], k.bias[entry]);
      }
      kernel_detail::copy_aligned<16>(out + v * kNormalizeWarp * 16, &vector);
    }
    return;
  }
  kernel_detail::store_run<kType, kItems>(grid, at, out, grid.span_length, [&](size_t item) {
    const size_t pixel = item / kChannels;
    const size_t channel = item - pixel * kChannels;
    const auto k =
        kernel_detail::coefficients_from<kChannels>(grid, static_cast<uint32_t>(channel));
    return kernel_detail::apply<kType>(in[channel * grid.pixels + pixel], k.scale[0], k.bias[0]);
  });
}

/// The kernel of one output type, number of channels and pair of layouts. `out` must be aligned to
/// its element; nothing else is asked of the addresses.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
struct NormalizeKernel {
  static_assert(kChannels > 1 || (kIn == Layout::kNhwc && kOut == Layout::kNhwc),
                "with one channel all layouts are the same");

  FASTLOADER_HOST_DEVICE void operator()(const NormalizeGrid& grid, const void* in, void* out,
                                         size_t thread) const {
    const uint8_t* from = static_cast<const uint8_t*>(in);
    uint8_t* to = static_cast<uint8_t*>(out);
    if constexpr (kIn == Layout::kNhwc && kOut == Layout::kNchw) {
      normalize_split_thread<kType, kChannels>(grid, from, to, thread);
    } else if constexpr (kIn == Layout::kNchw && kOut == Layout::kNhwc) {
      normalize_merge_thread<kType, kChannels>(grid, from, to, thread);
    } else {
      normalize_flat_thread<kType, kChannels, kIn>(grid, from, to, thread);
    }
  }
};

namespace kernel_detail {

template <FloatType kType, size_t kChannels, class Visitor>
void visit_layouts(const NormalizeSpec& spec, Visitor&& visitor) {
  constexpr Layout kNchw = Layout::kNchw;
  constexpr Layout kNhwc = Layout::kNhwc;
  if constexpr (kChannels > 1) {
    if (spec.out_layout == kNchw && spec.in_layout == kNchw) {
      return visitor(NormalizeKernel<kType, kChannels, kNchw, kNchw>{});
    }
    if (spec.out_layout == kNchw) return visitor(NormalizeKernel<kType, kChannels, kNhwc, kNchw>{});
    if (spec.in_layout == kNchw) return visitor(NormalizeKernel<kType, kChannels, kNchw, kNhwc>{});
  }
  visitor(NormalizeKernel<kType, kChannels, kNhwc, kNhwc>{});
}

template <FloatType kType, class Visitor>
void visit_channels(const NormalizeSpec& spec, Visitor&& visitor) {
  switch (spec.channels) {
    case 1:
      return visit_layouts<kType, 1>(spec, visitor);
    case 2:
      return visit_layouts<kType, 2>(spec, visitor);
    case 3:
      return visit_layouts<kType, 3>(spec, visitor);
    default:
      return visit_layouts<kType, 4>(spec, visitor);
  }
}

}  // namespace kernel_detail

/// Calls `visitor` with the NormalizeKernel for a spec that passed validate().
template <class Visitor>
void visit_normalize_kernel(const NormalizeSpec& spec, Visitor&& visitor) {
  switch (spec.out_type) {
    case FloatType::kFloat32:
      return kernel_detail::visit_channels<FloatType::kFloat32>(spec, visitor);
    case FloatType::kFloat16:
      return kernel_detail::visit_channels<FloatType::kFloat16>(spec, visitor);
    case FloatType::kBFloat16:
      return kernel_detail::visit_channels<FloatType::kBFloat16>(spec, visitor);
  }
}

/// Calls `visitor` once with each NormalizeKernel.
template <class Visitor>
void for_each_normalize_kernel(Visitor&& visitor) {
  NormalizeSpec spec;
  for (const FloatType type : {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBFloat16}) {
    for (const Layout in : {Layout::kNhwc, Layout::kNchw}) {
      for (const Layout out : {Layout::kNhwc, Layout::kNchw}) {
        for (int channels = 1; channels <= 4; ++channels) {
          // With one channel all layouts have the same kernel.
          if (channels == 1 && (in == Layout::kNchw || out == Layout::kNchw)) continue;
          spec.out_type = type;
          spec.in_layout = in;
          spec.out_layout = out;
          spec.channels = channels;
          visit_normalize_kernel(spec, visitor);
        }
      }
    }
  }
}

}  // namespace fastloader
