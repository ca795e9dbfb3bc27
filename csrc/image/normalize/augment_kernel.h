#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/augment.h"
#include "image/normalize/augment_block.h"
#include "image/normalize/kernel.h"

namespace fastloader {

// The body of the augmenting GPU kernel; see normalize/kernel.h for how it is used:
//
//   const AugmentGrid grid = make_augment_grid(spec);
//   visit_augment_kernel(spec, [&](auto kernel) {
//     for (size_t thread = 0; thread < grid.threads(); ++thread) {
//       kernel(grid, table, records, in, out, thread);
//     }
//   });

/// The kernel of one output type, number of channels and pair of layouts. `out` and `records` must
/// be aligned to 16 bytes; `table` is kNormalTable.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
struct AugmentKernel {
  /// Blocks of 256 threads that a multiprocessor is to hold at once. For more of them the compiler
  /// would put registers into memory.
  static constexpr unsigned kBlocksAtOnce = 3;

  FASTLOADER_HOST_DEVICE void operator()(const AugmentGrid& grid, const int32_t* table,
                                         const void* records, const void* in, void* out,
                                         size_t thread) const {
    const Place at = place_of<false>(grid.normalize, thread);
    AugmentBlock<kType, kChannels, kIn, kOut>(grid, at, table, Records(records, grid.batch),
                                              static_cast<const uint8_t*>(in),
                                              static_cast<uint8_t*>(out))
        .run();
  }
};

/// Calls `visitor` with the AugmentKernel for a spec that passed validate().
template <class Visitor>
void visit_augment_kernel(const AugmentSpec& spec, Visitor&& visitor) {
  visit_kernel<AugmentKernel>(spec.normalize, visitor);
}

/// Calls `visitor` once with each AugmentKernel.
template <class Visitor>
void for_each_augment_kernel(Visitor&& visitor) {
  for_each_kernel<AugmentKernel>(visitor);
}

}  // namespace fastloader
