#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/divisor.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// How the output is divided among the threads of a GPU kernel. It is cut into spans, a span into
// blocks, and a block belongs to 32 neighbouring threads, one warp: warp = thread / 32,
// span = warp / blocks_per_span, block = warp % blocks_per_span, lane = thread % 32.
//
//   layouts        a span is                    an item of it is     and is written to
//   NHWC -> NCHW   an image                     a pixel              every plane of the image
//   NCHW -> NCHW   a plane                      an element           the same position
//   NHWC -> NHWC   the batch, or an image       an element           the same position
//   NCHW -> NHWC   an image                     an element           the same position
//
// A run is what a span writes to consecutive addresses: a plane of the output, or the span. It has
// a head of single elements up to the first multiple of 16 bytes, vectors of 16 bytes, and a tail
// of single elements. Vector number v of a block is that of lane v % 32, so that the stores of a
// warp cover consecutive addresses, and a lane's next vector has the same distance in every thread:
// which channels it starts with follows from the first one's at compile time. The block's length is
// a multiple of the number of channels for the same reason.

constexpr uint32_t kNormalizeWarp = 32;

/// Items that a thread makes: enough to be worth the arithmetic before the first load.
FASTLOADER_HOST_DEVICE constexpr uint32_t normalize_items(size_t channels, Layout in, Layout out) {
  if (channels > 1 && in == Layout::kNhwc && out == Layout::kNchw) return 8;
  return channels == 3 ? 24 : 16;
}

/// Whether no span may be longer than an image, since each image has a record of its own.
enum class Spans : uint8_t { kLongest, kWithinImages };

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
inline NormalizeGrid make_normalize_grid(const NormalizeSpec& spec, Spans spans = Spans::kLongest) {
  const size_t channels = static_cast<size_t>(spec.channels);
  const bool planes = spec.in_layout == Layout::kNchw && spec.out_layout == Layout::kNchw;
  const bool flat = channels == 1 || (!planes && spec.in_layout == spec.out_layout);
  NormalizeGrid grid;
  grid.pixels = spec.pixels_per_image();
  if (flat && spans == Spans::kLongest) {
    grid.spans = 1;
    grid.span_length = spec.in_bytes();
  } else if (flat || spec.out_layout == Layout::kNhwc) {
    grid.spans = spec.batch;
    grid.span_length = grid.pixels * channels;
  } else {
    grid.spans = planes ? spec.batch * channels : spec.batch;
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

}  // namespace fastloader
