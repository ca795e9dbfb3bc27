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

FASTLOADER_HOST_DEVICE inline bool contains(EraseBox box, int32_t y, int32_t x) {
  return y >= box.top && y < box.bottom && x >= box.left && x < box.right;
}

FASTLOADER_HOST_DEVICE inline int32_t clamped(int32_t value, int32_t most) {
  return value < 0 ? 0 : value > most ? most : value;
}

}  // namespace augment_detail

/// What one thread makes of a block of an image that comes out. What the record does to the block
/// decides how: the 32 threads agree.
///
///   nothing                     normalise's own way
///   it cuts, or fills with 0    normalise's way with the bytes that lie in the boxes replaced
///   it blends, or both blends   normalise's way with two images
///   and fills with 0
///   it fills with another, or   element by element, as the definition has it; neighbouring threads
///   it both blends and cuts,    make neighbouring elements
///   which no recipe does, or
///   the block is not whole, or
///   its bytes are no words, or
///   a row is less than a vector
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
    // A few columns too many: a head moves the block's columns on, and a tail that ends a vector
    // early may begin before the last block's first column.
    const uint32_t first = at.block * Kind::kLength;
    const uint32_t length = static_cast<uint32_t>(grid.normalize.span_length);
    const uint32_t end = first + Kind::kLength + Kind::kVector;
    top_ = row_of(first < Kind::kVector ? 0 : first - Kind::kVector);
    bottom_ = row_of((end < length ? end : length) - 1) + 1;
  }

  FASTLOADER_HOST_DEVICE void run() {
    const bool of_bytes = grid_.blend == Blend::kBytes;
    blends_ = mix_.own_weight != 1;
    cuts_ = meets(cut_box());
    own_ = boxes_of(of_bytes ? image_ : mix_.own);
    if (!of_bytes && (blends_ || cuts_)) partner_ = boxes_of(mix_.partner);
    erases_ = meets(own_) || meets(partner_);
    if (!blends_ && !cuts_ && !erases_) {
      normalize_block<kType, kChannels, kIn, kOut>(grid_.normalize, at_, source(mix_.own), out_);
      return;
    }
    const Kind block(grid_.normalize, at_, out_);
    const bool boxes = cuts_ || erases_;
    if (!block.whole || !block.aligned_in(source(mix_.own)) ||
        !block.aligned_in(source(mix_.partner)) || grid_.row.value() < Kind::kVector ||
        (erases_ && grid_.fill != Fill::kZero) || (blends_ && cuts_)) {
      if (boxes) {
        by_elements([&](const Spot& spot) { return value(located(spot)); });
      } else if (of_bytes) {
        by_elements([&](const Spot& spot) { return blended<Blend::kBytes>(spot); });
      } else {
        by_elements([&](const Spot& spot) { return blended<Blend::kFloats>(spot); });
      }
    } else if (!blends_) {
      paste(block);
    } else if (of_bytes) {
      boxes ? mix<Blend::kBytes, true>(block) : mix<Blend::kBytes, false>(block);
    } else {
      boxes ? mix<Blend::kFloats, true>(block) : mix<Blend::kFloats, false>(block);
    }
  }

 private:
  using Kind = Block<kType, kChannels, kIn, kOut>;
  static constexpr bool kPlanes = kIn == Layout::kNchw && kOut == Layout::kNchw;
  static constexpr bool kSplit = kIn == Layout::kNhwc && kOut == Layout::kNchw;
  /// Columns of a pixel.
  static constexpr uint32_t kColumns = kOut == Layout::kNchw ? 1 : kChannels;
  static constexpr size_t kBytes = sizeof(kernel_detail::Bits<kType>);

  FASTLOADER_HOST_DEVICE int32_t row_of(uint32_t column) const {
    return static_cast<int32_t>(grid_.row.quotient(column));
  }

  FASTLOADER_HOST_DEVICE size_t plane() const { return channel_ * grid_.normalize.pixels; }

  /// Where an image of the input begins, or its plane.
  FASTLOADER_HOST_DEVICE const uint8_t* source(uint32_t image) const {
    return in_ + size_t{image} * grid_.image_values + plane();
  }

  /// The partner's box.
  FASTLOADER_HOST_DEVICE EraseBox cut_box() const {
    return {mix_.top, mix_.bottom, mix_.left, mix_.right};
  }

  /// Whether the box may have a part in the block's rows.
  FASTLOADER_HOST_DEVICE bool meets(EraseBox box) const {
    return box.top < bottom_ && box.bottom > top_ && box.left < box.right;
  }

  /// The boxes of one image.
  struct Boxes {
    uint32_t image = 0;
    uint32_t count = 0;
    const EraseBox* first = nullptr;
  };

  FASTLOADER_HOST_DEVICE Boxes boxes_of(uint32_t image) const {
    return {image, records_.mix[image].boxes, records_.boxes + size_t{image} * grid_.max_boxes};
  }

  FASTLOADER_HOST_DEVICE bool meets(Boxes boxes) const {
    bool met = false;
    FASTLOADER_ROLLED for (uint32_t box = 0; box < boxes.count; ++box) {
      met |= meets(boxes.first[box]);
    }
    return met;
  }

  // ---- Vector by vector

  FASTLOADER_HOST_DEVICE void paste(const Kind& block) const {
    auto bytes = block.load(source(mix_.own));
    const Marks marks = marks_of(static_cast<uint32_t>(block.first));
    if (cuts_) bytes.replace(block.load(source(mix_.partner)), marks.cut);
    // A cut takes the partner's floats with the partner's boxes, but bytes before any is erased.
    const uint32_t erased = grid_.blend == Blend::kBytes
                                ? marks.own
                                : (marks.own & ~marks.cut) | (marks.partner & marks.cut);
    const auto k = block.coefficients(grid_.normalize);
    block.store(out_, [&](size_t v, size_t c, size_t i) {
      const size_t entry = Kind::entry(v, c, i);
      const float x = fmaf(bytes.get(v, c, i), k.scale[entry], k.bias[entry]);
      return round_to<kType>((erased >> (v * Kind::kVector + i) & 1) != 0 ? 0 : x);
    });
  }

  template <Blend kBlend, bool kErases>
  FASTLOADER_HOST_DEVICE void mix(const Kind& block) const {
    using namespace augment_detail;
    const auto own = block.load(source(mix_.own));
    const auto partner = block.load(source(mix_.partner));
    const Marks marks = kErases ? marks_of(static_cast<uint32_t>(block.first)) : Marks{};
    const auto k = block.coefficients(grid_.normalize);
    block.store(out_, [&](size_t v, size_t c, size_t i) {
      const auto in = [&](uint32_t boxes) {
        return kErases && (boxes >> (v * Kind::kVector + i) & 1) != 0;
      };
      const size_t entry = Kind::entry(v, c, i);
      const auto normalized = [&](float byte) { return fmaf(byte, k.scale[entry], k.bias[entry]); };
      const auto blended = [&](float x, float y) {
        return blend(x, mix_.own_weight, y, mix_.partner_weight);
      };
      const float x = own.get(v, c, i);
      const float y = partner.get(v, c, i);
      if (kBlend == Blend::kFloats) {
        return round_to<kType>(
            blended(in(marks.own) ? 0 : normalized(x), in(marks.partner) ? 0 : normalized(y)));
      }
      return round_to<kType>(in(marks.own) ? 0 : normalized(round_to_whole(blended(x, y))));
    });
  }

  /// Of the thread's columns, vector after vector, a bit each: whether the column lies in the
  /// partner's box, and in one of own_'s and partner_'s.
  struct Marks {
    uint32_t cut = 0;
    uint32_t own = 0;
    uint32_t partner = 0;
  };
  static_assert(Kind::kVectors * Kind::kVector <= 32);

  FASTLOADER_HOST_DEVICE Marks marks_of(uint32_t column) const {
    Marks marks;
    FASTLOADER_ROLLED for (uint32_t v = 0; v < Kind::kVectors; ++v) {
      const uint32_t shift = v * Kind::kVector;
      const uint32_t row = grid_.row.quotient(column);
      const int32_t y = static_cast<int32_t>(row);
      const int32_t x = static_cast<int32_t>(column - row * grid_.row.value());
      if (cuts_) marks.cut |= columns_in(cut_box(), y, x) << shift;
      if (erases_) {
        marks.own |= columns_in(own_, y, x) << shift;
        marks.partner |= columns_in(partner_, y, x) << shift;
      }
      column += kNormalizeWarp * Kind::kVector;
    }
    return marks;
  }

  FASTLOADER_HOST_DEVICE uint32_t columns_in(Boxes boxes, int32_t y, int32_t x) const {
    uint32_t columns = 0;
    FASTLOADER_ROLLED for (uint32_t box = 0; box < boxes.count; ++box) {
      columns |= columns_in(boxes.first[box], y, x);
    }
    return columns;
  }

  /// Bit i says whether column i of the vector that begins at (y, x) is in the box. The vector ends
  /// in the next row at the latest: run() takes another way where rows are shorter.
  FASTLOADER_HOST_DEVICE uint32_t columns_in(EraseBox box, int32_t y, int32_t x) const {
    uint32_t columns = 0;
    if (y >= box.top && y < box.bottom) columns = columns_between(box, x);
    const int32_t next = x - static_cast<int32_t>(grid_.row.value());
    if (next + static_cast<int32_t>(Kind::kVector) > 0 && y + 1 >= box.top && y + 1 < box.bottom) {
      columns |= columns_between(box, next);
    }
    return columns;
  }

  /// Of one row. A negative x is that of a vector that began in the row before.
  FASTLOADER_HOST_DEVICE uint32_t columns_between(EraseBox box, int32_t x) const {
    using augment_detail::clamped;
    const int32_t width = static_cast<int32_t>(grid_.width);
    const int32_t columns = static_cast<int32_t>(kColumns);
    const int32_t vector = static_cast<int32_t>(Kind::kVector);
    const int32_t from = clamped(clamped(box.left, width) * columns - x, vector);
    const int32_t to = clamped(clamped(box.right, width) * columns - x, vector);
    return to <= from ? 0 : (1u << to) - (1u << from);
  }

  // ---- Element by element

  /// Where a value is.
  struct Spot {
    uint32_t channel;
    uint32_t pixel;
    uint32_t column;
    uint32_t byte;  // of an image of the input
    int32_t y = 0;
    int32_t x = 0;
  };

  /// The part of each run that store_run() gives the block, so that the blocks of a run may go
  /// different ways. `make(spot)` gives the value before it is rounded to the output type.
  template <class Make>
  FASTLOADER_HOST_DEVICE void by_elements(Make make) const {
    const uint32_t length = static_cast<uint32_t>(grid_.normalize.span_length);
    const bool last = at_.block + 1 == grid_.normalize.divisor.value();
    FASTLOADER_ROLLED for (uint32_t run = 0; run < (kSplit ? kChannels : 1); ++run) {
      uint8_t* out = out_ + run * grid_.normalize.pixels * kBytes;
      const kernel_detail::RunVectors<kType> vectors(out, length);
      const uint32_t tail = static_cast<uint32_t>(vectors.end);
      const uint32_t begin = static_cast<uint32_t>(vectors.begin) + at_.block * Kind::kLength;
      const uint32_t first = at_.block == 0 ? 0 : begin < tail ? begin : tail;
      const uint32_t full = begin + Kind::kLength;
      const uint32_t end = last ? length : full < tail ? full : tail;
      FASTLOADER_ROLLED for (uint32_t column = first + at_.lane; column < end;
                             column += kNormalizeWarp) {
        const kernel_detail::Bits<kType> bits = round_to<kType>(make(spot_of(run, column)));
        kernel_detail::copy_aligned<kBytes>(out + column * kBytes, &bits);
      }
    }
  }

  FASTLOADER_HOST_DEVICE Spot spot_of(uint32_t run, uint32_t column) const {
    Spot spot;
    spot.column = column;
    spot.pixel = column / kColumns;
    spot.channel = kSplit ? run : kPlanes ? channel_ : column - spot.pixel * kColumns;
    spot.byte = kIn == Layout::kNchw
                    ? spot.channel * static_cast<uint32_t>(grid_.normalize.pixels) + spot.pixel
                    : spot.pixel * static_cast<uint32_t>(kChannels) + spot.channel;
    return spot;
  }

  FASTLOADER_HOST_DEVICE Spot located(Spot spot) const {
    spot.y = row_of(spot.column);
    spot.x = static_cast<int32_t>(spot.pixel - static_cast<uint32_t>(spot.y) * grid_.width);
    return spot;
  }

  /// The value where no box is.
  template <Blend kBlend>
  FASTLOADER_HOST_DEVICE float blended(const Spot& spot) const {
    using namespace augment_detail;
    float x = byte(mix_.own, spot);
    float y = byte(mix_.partner, spot);
    if (kBlend == Blend::kFloats) {
      x = normalized(x, spot.channel);
      y = normalized(y, spot.channel);
    }
    const float mixed = blend(x, mix_.own_weight, y, mix_.partner_weight);
    return kBlend == Blend::kFloats ? mixed : normalized(round_to_whole(mixed), spot.channel);
  }

  /// The value wherever it is, and whatever is done to it.
  FASTLOADER_HOST_DEVICE float value(const Spot& spot) const {
    using namespace augment_detail;
    const bool cut = cuts_ && contains(cut_box(), spot.y, spot.x);
    const bool blends = !cut && blends_;
    const uint32_t first = cut ? mix_.partner : mix_.own;
    float filled = 0;
    if (grid_.blend == Blend::kBytes) {
      if (erased(own_, spot, &filled)) return filled;
      float whole = byte(first, spot);
      if (blends) {
        whole = round_to_whole(
            blend(whole, mix_.own_weight, byte(mix_.partner, spot), mix_.partner_weight));
      }
      return normalized(whole, spot.channel);
    }
    // Not cut ? partner_ : own_, which would choose between two places in memory.
    const Boxes boxes{first, cut ? partner_.count : own_.count, cut ? partner_.first : own_.first};
    float one = 0;
    if (!erased(boxes, spot, &one)) one = normalized(byte(first, spot), spot.channel);
    if (!blends) return one;
    float other = 0;
    if (!erased(partner_, spot, &other)) {
      other = normalized(byte(mix_.partner, spot), spot.channel);
    }
    return blend(one, mix_.own_weight, other, mix_.partner_weight);
  }

  /// Whether the value lies in one of the boxes; then `filled` is the fill.
  FASTLOADER_HOST_DEVICE bool erased(Boxes boxes, const Spot& spot, float* filled) const {
    if (!erases_) return false;
    FASTLOADER_ROLLED for (uint32_t box = boxes.count; box-- > 0;) {
      if (!augment_detail::contains(boxes.first[box], spot.y, spot.x)) continue;
      if (grid_.fill == Fill::kConstant) {
        *filled = records_.constant(spot.channel);
      } else if (grid_.fill != Fill::kZero) {
        const bool of_box = grid_.fill == Fill::kPerBox;
        const uint32_t pixels = static_cast<uint32_t>(grid_.normalize.pixels);
        const uint32_t element =
            of_box ? box * 4 + spot.channel : spot.channel * pixels + spot.pixel;
        // Anew for each value: a block of bits that is kept would cost the other ways registers,
        // and neighbours in a row are other threads'.
        uint32_t words[4];
        deviate_bits(records_.mix[boxes.image].key,
                     of_box ? kPerBoxOperation : kPerElementOperation, deviate_block(element),
                     words);
        *filled = deviate(table_, words, element);
      }
      return true;
    }
    return false;
  }

  FASTLOADER_HOST_DEVICE float byte(uint32_t image, const Spot& spot) const {
    return static_cast<float>(in_[size_t{image} * grid_.image_values + spot.byte]);
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
  int32_t top_;     // first row of the block
  int32_t bottom_;  // row behind its last one
  // What the record does to the block:
  bool blends_ = false;
  bool cuts_ = false;
  bool erases_ = false;
  // The boxes of the own image (where bytes are blended, of the one that comes out) and of the
  // partner, if its floats are looked at.
  Boxes own_;
  Boxes partner_;
};

}  // namespace fastloader
