#pragma once

#include <cstddef>
#include <cstdint>

#include "image/float_round.h"
#include "image/host_device.h"
#include "image/normalize/augment.h"
#include "image/normalize/augment_grid.h"
#include "image/normalize/block.h"
#include "image/normalize/deviates.h"
#include "image/normalize/records.h"

namespace fastloader {

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

template <class Box>
FASTLOADER_HOST_DEVICE inline bool contains(const Box& box, int32_t y, int32_t x) {
  return y >= box.top && y < box.bottom && x >= box.left && x < box.right;
}

FASTLOADER_HOST_DEVICE inline int32_t clamped(int32_t value, int32_t most) {
  return value < 0 ? 0 : value > most ? most : value;
}

}  // namespace augment_detail

/// What one thread makes of a block of an image that comes out. What the record does to the block
/// decides how: the 32 threads agree. Nothing: normalise's own way. It mixes: the short way with
/// two images, vector by vector. It also erases, or the block is not whole: element by element, the
/// definition's way, in which neighbouring threads make neighbouring elements.
template <FloatType kType, size_t kChannels, Layout kIn, Layout kOut>
class AugmentBlock {
 public:
  FASTLOADER_HOST_DEVICE AugmentBlock(const AugmentGrid& grid, const Place& at,
                                      const int32_t* table, const Records& records,
                                      const uint8_t* in, uint8_t* out)
      : grid_(grid),
        at_(at),
        records_(records),
        image_(kPlanes ? at.span / kChannels : at.span),
        channel_(kPlanes ? at.span % kChannels : 0),
        mix_(records.mix[image_]),
        in_(in),
        out_(out + (size_t{image_} * grid.image_values + plane()) * kBytes),
        table_(table) {
    const uint32_t length = static_cast<uint32_t>(grid.normalize.span_length);
    const uint32_t head = kSplit ? 0 : kernel_detail::head_of<kType>(out_);
    first_ = at.block == 0 ? 0 : head + at.block * Kind::kLength;
    end_ = head + (at.block + 1) * Kind::kLength;
    if (end_ > length) end_ = length;
  }

  FASTLOADER_HOST_DEVICE void run() {
    if (first_ >= end_) return;  // of the last block a head before the first may leave nothing
    top_ = static_cast<int32_t>(grid_.row.quotient(first_));
    bottom_ = static_cast<int32_t>(grid_.row.quotient(end_ - 1)) + 1;
    const bool of_bytes = grid_.blend == Blend::kBytes;
    const bool blends = mix_.own_weight != 1;
    const bool cuts = meets(mix_);
    const bool erases = meets_box(of_bytes ? image_ : mix_.own) ||
                        (!of_bytes && (blends || cuts) && meets_box(mix_.partner));
    const Kind block(grid_.normalize, at_, out_);
    if (erases || !block.whole || grid_.row.value() < Kind::kVector) {
      by_elements();
    } else if (!blends && !cuts) {
      normalize_whole(grid_.normalize, block, load(block, source(mix_.own)), out_);
    } else if (of_bytes) {
      mix<Blend::kBytes>(block, cuts);
    } else {
      mix<Blend::kFloats>(block, cuts);
    }
  }

 private:
  using Kind = Block<kType, kChannels, kIn, kOut>;
  static constexpr bool kPlanes = kIn == Layout::kNchw && kOut == Layout::kNchw;
  static constexpr bool kSplit = kIn == Layout::kNhwc && kOut == Layout::kNchw;
  /// Columns of a pixel.
  static constexpr uint32_t kColumns = kOut == Layout::kNchw ? 1 : kChannels;
  static constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);

  FASTLOADER_HOST_DEVICE size_t plane() const { return channel_ * grid_.normalize.pixels; }

  /// Where an image of the input begins, or its plane.
  FASTLOADER_HOST_DEVICE const uint8_t* source(uint32_t image) const {
    return in_ + size_t{image} * grid_.image_values + plane();
  }

  /// Whether the box may have a part in the block's rows.
  template <class Box>
  FASTLOADER_HOST_DEVICE bool meets(const Box& box) const {
    return box.top < bottom_ && box.bottom > top_ && box.left < box.right;
  }

  FASTLOADER_HOST_DEVICE bool meets_box(uint32_t image) const {
    bool met = false;
    for (uint32_t box = records_.mix[image].boxes; box-- > 0;) {
      met |= meets(records_.boxes[size_t{image} * grid_.max_boxes + box]);
    }
    return met;
  }

  // ---- Vector by vector

  template <Blend kBlend>
  FASTLOADER_HOST_DEVICE void mix(const Kind& block, bool cuts) const {
    using namespace augment_detail;
    const auto own = load(block, source(mix_.own));
    const auto partner = load(block, source(mix_.partner));
    uint32_t cut[Kind::kVectors] = {};
    if (cuts) {
      for (uint32_t v = 0; v < Kind::kVectors; ++v) {
        const uint32_t apart = kNormalizeWarp * Kind::kVector;
        cut[v] = cut_columns(static_cast<uint32_t>(block.first) + v * apart);
      }
    }
    const bool blends = mix_.own_weight != 1;
    const auto k = block.coefficients(grid_.normalize);
    block.store(out_, [&](size_t v, size_t c, size_t i) {
      const size_t entry = Kind::entry(v, c, i);
      const auto normalized = [&](float byte) { return fmaf(byte, k.scale[entry], k.bias[entry]); };
      float x = own.get(v, c, i);
      float y = partner.get(v, c, i);
      if (kBlend == Blend::kFloats) {
        x = normalized(x);
        y = normalized(y);
      }
      float mixed = blend(x, mix_.own_weight, y, mix_.partner_weight);
      if (kBlend == Blend::kBytes) mixed = round_to_whole(mixed);
      mixed = (cut[v] >> i & 1) != 0 ? y : blends ? mixed : x;
      return round_to<kType>(kBlend == Blend::kBytes ? normalized(mixed) : mixed);
    });
  }

  FASTLOADER_HOST_DEVICE static typename Kind::Bytes load(const Kind& block, const uint8_t* in) {
    return block.aligned_in(in) ? block.load(in) : block.load_bytes(in);
  }

  /// Which columns of the vector that begins at `first` lie in the partner's box: bit i is column
  /// first + i. A vector ends in the row after the one it begins in, at the latest.
  FASTLOADER_HOST_DEVICE uint32_t cut_columns(uint32_t first) const {
    const uint32_t row = grid_.row.quotient(first);
    const int32_t y = static_cast<int32_t>(row);
    const int32_t x = static_cast<int32_t>(first - row * grid_.row.value());
    return cut_columns(y, x) | cut_columns(y + 1, x - static_cast<int32_t>(grid_.row.value()));
  }

  /// The same of one row; x is negative where it begins within the vector.
  FASTLOADER_HOST_DEVICE uint32_t cut_columns(int32_t y, int32_t x) const {
    using augment_detail::clamped;
    if (y < mix_.top || y >= mix_.bottom) return 0;
    const int32_t width = static_cast<int32_t>(grid_.width);
    const int32_t columns = static_cast<int32_t>(kColumns);
    const int32_t vector = static_cast<int32_t>(Kind::kVector);
    const int32_t from = clamped(clamped(mix_.left, width) * columns - x, vector);
    const int32_t to = clamped(clamped(mix_.right, width) * columns - x, vector);
    return to <= from ? 0 : (1u << to) - (1u << from);
  }

  // ---- Element by element

  FASTLOADER_HOST_DEVICE void by_elements() const {
    for (uint32_t column = first_ + at_.lane; column < end_; column += kNormalizeWarp) {
      const uint32_t row = grid_.row.quotient(column);
      const uint32_t rest = column - row * grid_.row.value();
      const int32_t y = static_cast<int32_t>(row);
      const int32_t x = static_cast<int32_t>(rest / kColumns);
      if constexpr (kSplit) {
        FASTLOADER_ROLLED for (uint32_t c = 0; c < kChannels; ++c) {
          store(c * grid_.normalize.pixels + column, value(c, y, x));
        }
      } else {
        store(column, value(kPlanes ? channel_ : rest % kColumns, y, x));
      }
    }
  }

  FASTLOADER_HOST_DEVICE void store(size_t column, float value) const {
    const kernel_detail::Bits<kType> bits = round_to<kType>(value);
    kernel_detail::copy_aligned<kBytes>(out_ + column * kBytes, &bits);
  }

  /// One value of the image, before it is rounded to the output type.
  FASTLOADER_HOST_DEVICE float value(uint32_t c, int32_t y, int32_t x) const {
    using namespace augment_detail;
    const bool cut = contains(mix_, y, x);
    const bool blends = !cut && mix_.own_weight != 1;
    const uint32_t first = cut ? mix_.partner : mix_.own;
    if (grid_.blend == Blend::kBytes) {
      float filled = 0;
      if (erased(image_, c, y, x, &filled)) return filled;
      float whole = byte(first, c, y, x);
      if (blends) {
        whole = round_to_whole(
            blend(whole, mix_.own_weight, byte(mix_.partner, c, y, x), mix_.partner_weight));
      }
      return normalized(whole, c);
    }
    const float one = erased_or_normalized(first, c, y, x);
    if (!blends) return one;
    const float other = erased_or_normalized(mix_.partner, c, y, x);
    return blend(one, mix_.own_weight, other, mix_.partner_weight);
  }

  FASTLOADER_HOST_DEVICE float erased_or_normalized(uint32_t image, uint32_t c, int32_t y,
                                                    int32_t x) const {
    float filled = 0;
    return erased(image, c, y, x, &filled) ? filled : normalized(byte(image, c, y, x), c);
  }

  /// Whether the value lies in one of the image's boxes; then `filled` is the fill.
  FASTLOADER_HOST_DEVICE bool erased(uint32_t image, uint32_t c, int32_t y, int32_t x,
                                     float* filled) const {
    for (uint32_t box = records_.mix[image].boxes; box-- > 0;) {
      const EraseBox& each = records_.boxes[size_t{image} * grid_.max_boxes + box];
      if (!augment_detail::contains(each, y, x)) continue;
      if (grid_.fill != Fill::kZero) {
        const bool of_box = grid_.fill == Fill::kPerBox;
        const uint32_t pixels = static_cast<uint32_t>(grid_.normalize.pixels);
        const uint32_t element = of_box ? box * 4 + c : c * pixels + pixel(y, x);
        uint32_t words[4];
        deviate_bits(records_.key, of_box ? kPerBoxOperation : kPerElementOperation, image,
                     deviate_block(element), words);
        *filled = deviate(table_, words, element);
      }
      return true;
    }
    return false;
  }

  FASTLOADER_HOST_DEVICE uint32_t pixel(int32_t y, int32_t x) const {
    return static_cast<uint32_t>(y) * grid_.width + static_cast<uint32_t>(x);
  }

  FASTLOADER_HOST_DEVICE float byte(uint32_t image, uint32_t c, int32_t y, int32_t x) const {
    const uint32_t pixels = static_cast<uint32_t>(grid_.normalize.pixels);
    const uint32_t at =
        kIn == Layout::kNchw ? c * pixels + pixel(y, x) : pixel(y, x) * kChannels + c;
    return static_cast<float>(in_[size_t{image} * grid_.image_values + at]);
  }

  FASTLOADER_HOST_DEVICE float normalized(float x, uint32_t c) const {
    // Not scale[c]: see kernel_detail::Coefficients.
    const auto k = kernel_detail::coefficients_from<kChannels>(grid_.normalize, c);
    return fmaf(x, k.scale[0], k.bias[0]);
  }

  const AugmentGrid& grid_;
  const Place at_;
  const Records records_;
  const uint32_t image_;    // that comes out
  const uint32_t channel_;  // of the plane, where a span is one
  const MixRecord mix_;
  const uint8_t* const in_;
  uint8_t* const out_;  // where the span begins
  const int32_t* const table_;
  uint32_t first_;      // column of the block
  uint32_t end_;        // column behind it
  int32_t top_ = 0;     // row of the block
  int32_t bottom_ = 0;  // row behind it
};

}  // namespace fastloader
