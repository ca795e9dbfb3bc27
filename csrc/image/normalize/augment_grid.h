#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/augment.h"
#include "image/normalize/divisor.h"
#include "image/normalize/grid.h"

namespace fastloader {

/// As normalise's grid, but no span is longer than an image.
///
/// A *column* is what a run writes to one address: a pixel of a plane, or an element of interleaved
/// images. A *row* is a row of the image, in columns.
struct AugmentGrid {
  NormalizeGrid normalize;
  size_t batch = 0;
  uint32_t image_values = 0;
  uint32_t width = 0;
  Divisor row;  // by the columns of a row
  uint32_t max_boxes = 0;
  Fill fill = Fill::kZero;
  Blend blend = Blend::kFloats;

  size_t threads() const { return normalize.threads(); }
};

/// Expects a spec that passed validate().
inline AugmentGrid make_augment_grid(const AugmentSpec& spec) {
  const NormalizeSpec& normalize = spec.normalize;
  const uint32_t channels = static_cast<uint32_t>(normalize.channels);
  AugmentGrid grid;
  grid.normalize = make_normalize_grid(normalize, Spans::kWithinImages);
  grid.batch = normalize.batch;
  grid.image_values = static_cast<uint32_t>(normalize.pixels_per_image()) * channels;
  grid.width = static_cast<uint32_t>(normalize.width);
  const uint32_t columns = normalize.out_layout == Layout::kNchw ? 1 : channels;
  if (grid.image_values != 0) grid.row = Divisor(grid.width * columns);
  grid.max_boxes = static_cast<uint32_t>(spec.max_boxes);
  grid.fill = spec.fill;
  grid.blend = spec.blend;
  return grid;
}

}  // namespace fastloader
