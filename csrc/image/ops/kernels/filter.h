#pragma once

#include <cstddef>
#include <cstdint>

#include "image/ops/kernels/box.h"

namespace fastloader {

/// Half of a kernel, which is symmetric: the weight of the pixel itself, and then those of the two
/// pixels at each distance, up to `reach`.
struct HalfKernel {
  static constexpr size_t kMostReach = 511;

  float weights[kMostReach + 1];
  size_t reach = 0;
};

/// Where the rows lie that a row of the result is made of.
struct RowsAround {
  const uint8_t* middle;
  const uint8_t* above[HalfKernel::kMostReach + 1];  // by distance
  const uint8_t* below[HalfKernel::kMostReach + 1];
};

/// What the filters do to the bytes of one row of RGB pixels, on one instruction set. All of them
/// give the same bytes. Pointers have no alignment.
struct FilterKernels {
  /// One pass of a Gaussian blur down the columns: the floats that `bytes` bytes become, each
  /// summed on its own, from the pixel itself outwards.
  void (*blur_down)(const RowsAround& rows, const HalfKernel& kernel, size_t bytes, float* out);
  /// The other pass, along the row, of which kernel.reach more pixels lie on either side of
  /// `middle`. Rounds half to even.
  void (*blur_along)(const float* middle, const HalfKernel& kernel, size_t bytes, uint8_t* out);
  /// ImageEnhance.Sharpness of the pixels between the first and the last of a row, which have
  /// `bytes` bytes. Pointers into rows are to the first pixel, `out` is to the second.
  void (*sharpen)(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes,
                  float factor, uint8_t* out);
  /// A box blur along lines of kBoxLine bytes, of which there is at least one. Rounds to bytes;
  /// sums wrap where Pillow's do.
  void (*box_pass)(const uint8_t* in, size_t lines, const Box& box, uint8_t* out);
};

extern const FilterKernels kFilterScalar;
extern const FilterKernels kFilterAvx2;

}  // namespace fastloader
