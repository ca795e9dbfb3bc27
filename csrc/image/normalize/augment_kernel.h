#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/float_round.h"
#include "image/host_device.h"
#include "image/normalize/augment.h"
#include "image/normalize/kernel.h"
#include "image/philox.h"

namespace fastloader {

// The body of the augmenting GPU kernel; see normalize/kernel.h for how it is used:
//
//   const AugmentGrid grid = make_augment_grid(spec);
//   visit_augment_kernel(spec, [&](auto kernel) {
//     for (size_t thread = 0; thread < grid.threads(); ++thread) {
//       kernel(grid, table, records, in, out, thread);
//     }
//   });
//
// A thread makes 16 neighbouring bytes of the output in every layout, and looks up its image's
// record once. The plain kernels stay as they are for batches without records.

struct AugmentGrid {
  size_t values = 0;  // of the output
  size_t batch = 0;
  uint32_t image_values = 0;
  uint32_t pixels = 0;
  uint32_t width = 0;
  uint32_t channels = 0;
  uint32_t max_boxes = 0;
  uint32_t vector = 0;  // values a thread makes
  bool planar_in = false;
  bool planar_out = false;
  Fill fill = Fill::kZero;
  Blend blend = Blend::kFloats;
  float scale[kMaxChannels] = {};
  float bias[kMaxChannels] = {};

  FASTLOADER_HOST_DEVICE size_t threads() const { return (values + vector - 1) / vector; }
};

/// Expects a spec that passed validate().
inline AugmentGrid make_augment_grid(const AugmentSpec& spec) {
  const NormalizeSpec& normalize = spec.normalize;
  AugmentGrid grid;
  grid.batch = normalize.batch;
  grid.pixels = static_cast<uint32_t>(normalize.pixels_per_image());
  grid.channels = static_cast<uint32_t>(normalize.channels);
  grid.image_values = grid.pixels * grid.channels;
  grid.values = normalize.batch * grid.image_values;
  grid.width = static_cast<uint32_t>(normalize.width);
  grid.max_boxes = static_cast<uint32_t>(spec.max_boxes);
  grid.vector = static_cast<uint32_t>(16 / bytes_per_element(normalize.out_type));
  grid.planar_in = normalize.in_layout == Layout::kNchw;
  grid.planar_out = normalize.out_layout == Layout::kNchw;
  grid.fill = spec.fill;
  grid.blend = spec.blend;
  for (size_t c = 0; c < grid.channels; ++c) {
    grid.scale[c] = normalize.scale[c];
    grid.bias[c] = normalize.bias[c];
  }
  return grid;
}

namespace augment_detail {

// No compiler may fuse these into something that rounds once; the host's are told so for all files.
FASTLOADER_HOST_DEVICE inline float multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

FASTLOADER_HOST_DEVICE inline float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

FASTLOADER_HOST_DEVICE inline float blend(float own, float own_weight, float partner,
                                          float partner_weight) {
  return add(multiply(own, own_weight), multiply(partner, partner_weight));
}

/// To the nearest, ties to even, for 0 <= value < 2^22: beyond 2^23 floats are whole numbers.
FASTLOADER_HOST_DEVICE inline float round_to_whole(float value) {
  return add(add(value, 0x1p23f), -0x1p23f);
}

constexpr uint32_t kPerBoxOperation = 16;
constexpr uint32_t kPerElementOperation = 17;

/// Deviates of one image; neighbouring elements share a block of random bits.
class Deviates {
 public:
  FASTLOADER_HOST_DEVICE Deviates(const int32_t* table, uint64_t key) : table_(table), key_(key) {}

  FASTLOADER_HOST_DEVICE float get(uint32_t operation, uint32_t image, uint32_t element) {
    if (!known_ || element / 8 != block_ || image != image_) {
      block_ = element / 8;
      image_ = image;
      known_ = true;
      words_[0] = block_;
      words_[1] = operation;  // the same for all of a batch
      words_[2] = image;
      words_[3] = 0;
      philox4x32_rounds(words_, static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    }
    // Not words_[k]: an array indexed by what is known only at run time leaves the registers.
    const uint32_t k = element / 2 % 4;
    const uint32_t word = k == 0 ? words_[0] : k == 1 ? words_[1] : k == 2 ? words_[2] : words_[3];
    const uint32_t bits = element % 2 == 0 ? word : word >> 16;
    const float magnitude = multiply(static_cast<float>(table_[bits % kNormalTableSize]), 0x1p-16f);
    return (bits & kNormalTableSize) != 0 ? -magnitude : magnitude;
  }

 private:
  const int32_t* table_;
  uint64_t key_;
  uint32_t words_[4] = {};
  uint32_t block_ = 0;
  uint32_t image_ = 0;
  bool known_ = false;
};

template <class Box>
FASTLOADER_HOST_DEVICE inline bool contains(const Box& box, int32_t y, int32_t x) {
  return y >= box.top && y < box.bottom && x >= box.left && x < box.right;
}

/// The records as they lie in memory, aligned to 16 bytes.
struct Records {
  uint64_t key;
  const MixRecord* mix;
  const EraseBox* boxes;

  FASTLOADER_HOST_DEVICE Records(const void* memory, size_t batch)
      : key(*static_cast<const uint64_t*>(memory)),
        mix(reinterpret_cast<const MixRecord*>(static_cast<const uint64_t*>(memory) + 2)),
        boxes(reinterpret_cast<const EraseBox*>(mix + batch)) {}
};

/// One value of an image, before it is rounded to the output type.
struct Pixels {
  const AugmentGrid& grid;
  const Records& records;
  const uint8_t* in;
  Deviates deviates;

  FASTLOADER_HOST_DEVICE float byte(uint32_t image, uint32_t c, uint32_t pixel) const {
    const uint32_t at = grid.planar_in ? c * grid.pixels + pixel : pixel * grid.channels + c;
    return static_cast<float>(in[size_t{image} * grid.image_values + at]);
  }

  FASTLOADER_HOST_DEVICE float normalized(float x, uint32_t c) const {
    // Not scale[c]: see kernel_detail::Coefficients.
    const float scale = c == 0   ? grid.scale[0]
                        : c == 1 ? grid.scale[1]
                        : c == 2 ? grid.scale[2]
                                 : grid.scale[3];
    const float bias = c == 0   ? grid.bias[0]
                       : c == 1 ? grid.bias[1]
                       : c == 2 ? grid.bias[2]
                                : grid.bias[3];
    return fmaf(x, scale, bias);
  }

  /// Whether the value lies in one of the image's boxes; then `value` is the fill.
  FASTLOADER_HOST_DEVICE bool erased(uint32_t image, uint32_t c, int32_t y, int32_t x,
                                     float* value) {
    for (uint32_t box = records.mix[image].boxes; box-- > 0;) {
      if (!contains(records.boxes[size_t{image} * grid.max_boxes + box], y, x)) continue;
      if (grid.fill == Fill::kZero) {
        *value = 0;
      } else if (grid.fill == Fill::kPerBox) {
        *value = deviates.get(kPerBoxOperation, image, box * 4 + c);
      } else {
        const uint32_t pixel = static_cast<uint32_t>(y) * grid.width + static_cast<uint32_t>(x);
        *value = deviates.get(kPerElementOperation, image, c * grid.pixels + pixel);
      }
      return true;
    }
    return false;
  }

  FASTLOADER_HOST_DEVICE float erased_or_normalized(uint32_t image, uint32_t c, uint32_t pixel,
                                                    int32_t y, int32_t x) {
    float value = 0;
    return erased(image, c, y, x, &value) ? value : normalized(byte(image, c, pixel), c);
  }

  FASTLOADER_HOST_DEVICE float get(uint32_t image, const MixRecord& mix, uint32_t c,
                                   uint32_t pixel) {
    const int32_t y = static_cast<int32_t>(pixel / grid.width);
    const int32_t x = static_cast<int32_t>(pixel % grid.width);
    const bool cut = contains(mix, y, x);
    if (grid.blend == Blend::kBytes) {
      float value = 0;
      if (erased(image, c, y, x, &value)) return value;
      float whole = byte(cut ? mix.partner : mix.own, c, pixel);
      if (!cut && mix.own_weight != 1) {
        whole = round_to_whole(
            blend(whole, mix.own_weight, byte(mix.partner, c, pixel), mix.partner_weight));
      }
      return normalized(whole, c);
    }
    if (cut) return erased_or_normalized(mix.partner, c, pixel, y, x);
    const float own = erased_or_normalized(mix.own, c, pixel, y, x);
    if (mix.own_weight == 1) return own;
    const float partner = erased_or_normalized(mix.partner, c, pixel, y, x);
    return blend(own, mix.own_weight, partner, mix.partner_weight);
  }
};

}  // namespace augment_detail

/// `out` and `records` must be aligned to 16 bytes; `table` is kNormalTable.
template <FloatType kType>
struct AugmentKernel {
  FASTLOADER_HOST_DEVICE void operator()(const AugmentGrid& grid, const int32_t* table,
                                         const void* records, const void* in, void* out,
                                         size_t thread) const {
    using Bits = kernel_detail::Bits<kType>;
    constexpr size_t kVector = kernel_detail::kVectorLength<kType>;
    const augment_detail::Records parsed(records, grid.batch);
    augment_detail::Pixels pixels{grid, parsed, static_cast<const uint8_t*>(in),
                                  augment_detail::Deviates(table, parsed.key)};
    const size_t first = thread * kVector;
    uint32_t image = static_cast<uint32_t>(first / grid.image_values);
    uint32_t rest = static_cast<uint32_t>(first - size_t{image} * grid.image_values);
    MixRecord mix = parsed.mix[image];
    kernel_detail::OutVector<kType> vector{};
    const size_t count = grid.values - first < kVector ? grid.values - first : kVector;
    for (size_t i = 0; i < kVector; ++i) {
      if (i >= count) break;
      if (rest == grid.image_values) {
        rest = 0;
        mix = parsed.mix[++image];
      }
      const uint32_t c = grid.planar_out ? rest / grid.pixels : rest % grid.channels;
      const uint32_t pixel = grid.planar_out ? rest - c * grid.pixels : rest / grid.channels;
      vector.elements[i] = round_to<kType>(pixels.get(image, mix, c, pixel));
      ++rest;
    }
    Bits* to = static_cast<Bits*>(out) + first;
    if (count == kVector) {
      kernel_detail::copy_aligned<16>(to, &vector);
    } else {
      for (size_t i = 0; i < kVector; ++i) {
        if (i < count) to[i] = vector.elements[i];
      }
    }
  }
};

/// Calls `visitor` with the AugmentKernel for a spec that passed validate().
template <class Visitor>
void visit_augment_kernel(const AugmentSpec& spec, Visitor&& visitor) {
  switch (spec.normalize.out_type) {
    case FloatType::kFloat32:
      return visitor(AugmentKernel<FloatType::kFloat32>{});
    case FloatType::kFloat16:
      return visitor(AugmentKernel<FloatType::kFloat16>{});
    case FloatType::kBFloat16:
      return visitor(AugmentKernel<FloatType::kBFloat16>{});
  }
}

/// Calls `visitor` once with each AugmentKernel.
template <class Visitor>
void for_each_augment_kernel(Visitor&& visitor) {
  AugmentSpec spec;
  for (const FloatType type : {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBFloat16}) {
    spec.normalize.out_type = type;
    visit_augment_kernel(spec, visitor);
  }
}

}  // namespace fastloader
