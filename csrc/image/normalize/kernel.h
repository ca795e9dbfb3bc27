#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/float_round.h"
#include "image/host_device.h"
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
// The output is cut into spans, a span into blocks of 32 vectors of 16 bytes, and a block belongs
// to 32 neighbouring threads, one warp: warp = thread / 32, span = warp / blocks_per_span,
// block = warp % blocks_per_span, lane = thread % 32.
//
//   layouts        a span is                    an item of it is     and is written to
//   NHWC -> NCHW   an image                     a pixel              every plane of the image
//   NCHW -> NCHW   a plane                      an element           the same position
//   NHWC -> NHWC   the batch                    an element           the same position
//   NCHW -> NHWC   an image                     an element           the same position
//
// A whole block with suitably aligned addresses: lane l takes items l * kVector .. + kVector - 1 of
// the block and stores 16 bytes at a time. Any other block (the span's last one; all blocks when
// the spans' length is odd): lane l takes items l, l + 32, l + 64, ... one at a time. So the stores
// of a warp cover consecutive addresses either way, and the choice is the same for all 32.

constexpr size_t kNormalizeWarp = 32;

struct NormalizeGrid {
  size_t spans = 0;
  size_t span_length = 0;  // in items
  size_t blocks_per_span = 0;
  size_t pixels = 0;  // of an image
  float scale[kMaxChannels] = {};
  float bias[kMaxChannels] = {};

  /// 0 when there is nothing to do: a CUDA grid must not be empty, so don't launch then.
  FASTLOADER_HOST_DEVICE size_t threads() const { return spans * blocks_per_span * kNormalizeWarp; }
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
  const size_t block = kNormalizeWarp * (16 / bytes_per_element(spec.out_type));
  grid.blocks_per_span = (grid.span_length + block - 1) / block;
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
constexpr size_t kVectorLength = 16 / sizeof(Bits<kType>);

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
                                                                        size_t first) {
  Coefficients<kChannels> rotated{};
  for (size_t k = 0; k < kChannels; ++k) {
    for (size_t c = 0; c < kChannels; ++c) {
      if (first == (c + kChannels - k) % kChannels) {
        rotated.scale[k] = grid.scale[c];
        rotated.bias[k] = grid.bias[c];
      }
    }
  }
  return rotated;
}

template <FloatType kType>
FASTLOADER_HOST_DEVICE inline Bits<kType> apply(uint8_t value, float scale, float bias) {
  return round_to<kType>(fmaf(static_cast<float>(value), scale, bias));
}

template <FloatType kType>
FASTLOADER_HOST_DEVICE inline void store_element(uint8_t value, float scale, float bias,
                                                 uint8_t* out) {
  const Bits<kType> bits = apply<kType>(value, scale, bias);
  copy_aligned<sizeof bits>(out, &bits);
}

}  // namespace kernel_detail

/// NHWC -> NCHW: an item is a pixel.
template <FloatType kType, size_t kChannels>
FASTLOADER_HOST_DEVICE inline void normalize_split_thread(const NormalizeGrid& grid,
                                                          const uint8_t* in, uint8_t* out,
                                                          size_t thread) {
  constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  constexpr size_t kVector = kernel_detail::kVectorLength<kType>;
  const size_t lane = thread % kNormalizeWarp;
  const size_t warp = thread / kNormalizeWarp;
  const size_t image = warp / grid.blocks_per_span;
  const size_t block = (warp - image * grid.blocks_per_span) * kNormalizeWarp * kVector;
  const size_t plane = grid.pixels * kBytes;
  in += image * grid.pixels * kChannels;
  out += image * plane * kChannels;
  const bool whole = block + kNormalizeWarp * kVector <= grid.pixels;
  if (whole && plane % 16 == 0 && kernel_detail::aligned(out, 16) &&
      kernel_detail::aligned(in, kVector)) {
    const size_t first = block + lane * kVector;
    struct alignas(kVector) Word {
      uint8_t bytes[kVector];
    };
    struct alignas(kVector) {
      uint8_t bytes[kVector * kChannels];
    } pixels;
    for (size_t i = 0; i < kChannels; ++i) {
      kernel_detail::copy_aligned<sizeof(Word)>(pixels.bytes + i * kVector,
                                                in + first * kChannels + i * kVector);
    }
    for (size_t c = 0; c < kChannels; ++c) {
      kernel_detail::OutVector<kType> vector;
      for (size_t i = 0; i < kVector; ++i) {
        vector.elements[i] = kernel_detail::apply<kType>(pixels.bytes[i * kChannels + c],
                                                         grid.scale[c], grid.bias[c]);
      }
      kernel_detail::copy_aligned<16>(out + c * plane + first * kBytes, &vector);
    }
    return;
  }
  for (size_t i = 0; i < kVector; ++i) {
    const size_t pixel = block + i * kNormalizeWarp + lane;
    if (pixel >= grid.pixels) return;
    for (size_t c = 0; c < kChannels; ++c) {
      kernel_detail::store_element<kType>(in[pixel * kChannels + c], grid.scale[c], grid.bias[c],
                                          out + c * plane + pixel * kBytes);
    }
  }
}

/// The other layouts: an item is an element, in the order of the output.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
FASTLOADER_HOST_DEVICE inline void normalize_flat_thread(const NormalizeGrid& grid,
                                                         const uint8_t* in, uint8_t* out,
                                                         size_t thread) {
  constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);
  constexpr size_t kVector = kernel_detail::kVectorLength<kType>;
  constexpr bool kSameOrder = kIn == kOut;
  const size_t lane = thread % kNormalizeWarp;
  const size_t warp = thread / kNormalizeWarp;
  const size_t span = warp / grid.blocks_per_span;
  const size_t block = (warp - span * grid.blocks_per_span) * kNormalizeWarp * kVector;
  in += span * grid.span_length;
  out += span * grid.span_length * kBytes;
  const bool whole = block + kNormalizeWarp * kVector <= grid.span_length;
  if (whole && kernel_detail::aligned(out, 16) &&
      (!kSameOrder || kernel_detail::aligned(in, kVector))) {
    const size_t first = block + lane * kVector;
    struct alignas(kVector) Word {
      uint8_t bytes[kVector];
    } word;
    if constexpr (kSameOrder) {
      kernel_detail::copy_aligned<sizeof(Word)>(&word, in + first);
    } else {
      for (size_t i = 0; i < kVector; ++i) {
        word.bytes[i] = in[(first + i) % kChannels * grid.pixels + (first + i) / kChannels];
      }
    }
    const auto k = kernel_detail::coefficients_from<kChannels>(
        grid, (kOut == Layout::kNchw ? span : first) % kChannels);
    kernel_detail::OutVector<kType> vector;
    for (size_t i = 0; i < kVector; ++i) {
      const size_t entry = kOut == Layout::kNchw ? 0 : i % kChannels;
      vector.elements[i] =
          kernel_detail::apply<kType>(word.bytes[i], k.scale[entry], k.bias[entry]);
    }
    kernel_detail::copy_aligned<16>(out + first * kBytes, &vector);
    return;
  }
  for (size_t i = 0; i < kVector; ++i) {
    const size_t item = block + i * kNormalizeWarp + lane;
    if (item >= grid.span_length) return;
    const size_t channel = (kOut == Layout::kNchw ? span : item) % kChannels;
    const size_t from = kSameOrder ? item : channel * grid.pixels + item / kChannels;
    const auto k = kernel_detail::coefficients_from<kChannels>(grid, channel);
    kernel_detail::store_element<kType>(in[from], k.scale[0], k.bias[0], out + item * kBytes);
  }
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
    } else {
      normalize_flat_thread<kType, kChannels, kIn, kOut>(grid, from, to, thread);
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
