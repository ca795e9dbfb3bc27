#pragma once

#include <cstddef>
#include <cstdint>

#include "image/host_device.h"
#include "image/normalize/block.h"
#include "image/normalize/grid.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// The body of the GPU kernel, as a function of (grid, addresses, thread index). The CUDA kernel
// calls it once per thread and the host twin in a loop, over the same grid.
//
//   const NormalizeGrid grid = make_normalize_grid(spec);
//   visit_normalize_kernel(spec, [&](auto kernel) {
//     for (size_t thread = 0; thread < grid.threads(); ++thread) kernel(grid, in, out, thread);
//   });

/// The kernel of one output type, number of channels and pair of layouts. `out` must be aligned to
/// its element; nothing else is asked of the addresses.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
struct NormalizeKernel {
  static_assert(kChannels > 1 || (kIn == Layout::kNhwc && kOut == Layout::kNhwc),
                "with one channel all layouts are the same");

  FASTLOADER_HOST_DEVICE void operator()(const NormalizeGrid& grid, const void* in, void* out,
                                         size_t thread) const {
    constexpr bool kOneSpan = kIn == Layout::kNhwc && kOut == Layout::kNhwc;
    constexpr size_t kItem = kIn == Layout::kNhwc && kOut == Layout::kNchw ? kChannels : 1;
    const Place at = place_of<kOneSpan>(grid, thread);
    const size_t start = kOneSpan ? 0 : at.span * grid.span_length * kItem;
    normalize_block<kType, kChannels, kIn, kOut>(
        grid, at, static_cast<const uint8_t*>(in) + start,
        static_cast<uint8_t*>(out) + start * sizeof(kernel_detail::Bits<kType>));
  }
};

namespace kernel_detail {

template <template <FloatType, size_t, Layout, Layout> class Kernel, FloatType kType,
          size_t kChannels, class Visitor>
void visit_layouts(const NormalizeSpec& spec, Visitor&& visitor) {
  constexpr Layout kNchw = Layout::kNchw;
  constexpr Layout kNhwc = Layout::kNhwc;
  if constexpr (kChannels > 1) {
    if (spec.out_layout == kNchw && spec.in_layout == kNchw) {
      return visitor(Kernel<kType, kChannels, kNchw, kNchw>{});
    }
    if (spec.out_layout == kNchw) return visitor(Kernel<kType, kChannels, kNhwc, kNchw>{});
    if (spec.in_layout == kNchw) return visitor(Kernel<kType, kChannels, kNchw, kNhwc>{});
  }
  visitor(Kernel<kType, kChannels, kNhwc, kNhwc>{});
}

template <template <FloatType, size_t, Layout, Layout> class Kernel, FloatType kType, class Visitor>
void visit_channels(const NormalizeSpec& spec, Visitor&& visitor) {
  switch (spec.channels) {
    case 1:
      return visit_layouts<Kernel, kType, 1>(spec, visitor);
    case 2:
      return visit_layouts<Kernel, kType, 2>(spec, visitor);
    case 3:
      return visit_layouts<Kernel, kType, 3>(spec, visitor);
    default:
      return visit_layouts<Kernel, kType, 4>(spec, visitor);
  }
}

}  // namespace kernel_detail

/// Calls `visitor` with the kernel of a template for a spec that passed validate(). With one
/// channel all layouts have the same kernel.
template <template <FloatType, size_t, Layout, Layout> class Kernel, class Visitor>
void visit_kernel(const NormalizeSpec& spec, Visitor&& visitor) {
  switch (spec.out_type) {
    case FloatType::kFloat32:
      return kernel_detail::visit_channels<Kernel, FloatType::kFloat32>(spec, visitor);
    case FloatType::kFloat16:
      return kernel_detail::visit_channels<Kernel, FloatType::kFloat16>(spec, visitor);
    case FloatType::kBFloat16:
      return kernel_detail::visit_channels<Kernel, FloatType::kBFloat16>(spec, visitor);
  }
}

/// Calls `visitor` once with each kernel of a template.
template <template <FloatType, size_t, Layout, Layout> class Kernel, class Visitor>
void for_each_kernel(Visitor&& visitor) {
  NormalizeSpec spec;
  for (const FloatType type : {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBFloat16}) {
    for (const Layout in : {Layout::kNhwc, Layout::kNchw}) {
      for (const Layout out : {Layout::kNhwc, Layout::kNchw}) {
        for (int channels = 1; channels <= 4; ++channels) {
          if (channels == 1 && (in == Layout::kNchw || out == Layout::kNchw)) continue;
          spec.out_type = type;
          spec.in_layout = in;
          spec.out_layout = out;
          spec.channels = channels;
          visit_kernel<Kernel>(spec, visitor);
        }
      }
    }
  }
}

/// Calls `visitor` with the NormalizeKernel for a spec that passed validate().
template <class Visitor>
void visit_normalize_kernel(const NormalizeSpec& spec, Visitor&& visitor) {
  visit_kernel<NormalizeKernel>(spec, visitor);
}

/// Calls `visitor` once with each NormalizeKernel.
template <class Visitor>
void for_each_normalize_kernel(Visitor&& visitor) {
  for_each_kernel<NormalizeKernel>(visitor);
}

}  // namespace fastloader
