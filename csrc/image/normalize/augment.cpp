#include "image/normalize/augment.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/normalize/augment_block.h"
#include "image/normalize/deviates.h"
#include "image/normalize/records.h"

namespace fastloader {

const int32_t kNormalTable[kNormalTableSize] = {
#include "image/normalize/normal_table.inc"
};

static_assert(sizeof(MixRecord) == 44 && sizeof(EraseBox) == 16,
              "fastloader/_core/batch/augmentation.py writes these");

void validate(const AugmentSpec& spec) {
  const NormalizeSpec& normalize = spec.normalize;
  validate(normalize);
  constexpr size_t kMost = size_t{1} << 31;
  if (normalize.height >= kMost || normalize.width >= kMost ||
      normalize.pixels_per_image() >= kMost / static_cast<size_t>(normalize.channels)) {
    throw InvalidArgument("augment: images of " + std::to_string(normalize.channels) + " x " +
                          std::to_string(normalize.height) + " x " +
                          std::to_string(normalize.width) +
                          " values; fewer than 2^31 are possible");
  }
  if (normalize.batch >= kMost || spec.in_batch >= kMost || spec.max_boxes >= kMost / 4) {
    throw InvalidArgument("augment: too many images or boxes");
  }
  if (spec.blend == Blend::kFloats && spec.in_batch != normalize.batch) {
    throw InvalidArgument("augment: " + std::to_string(spec.in_batch) + " images go in and " +
                          std::to_string(normalize.batch) +
                          " come out; that is possible where bytes are blended");
  }
}

void validate_records(const AugmentSpec& spec, const void* records) {
  const Records parsed(records, spec.normalize.batch);
  for (size_t n = 0; n < spec.normalize.batch; ++n) {
    const MixRecord& mix = parsed.mix[n];
    if (mix.own >= spec.in_batch || mix.partner >= spec.in_batch) {
      throw InvalidArgument("augment: record " + std::to_string(n) + " mixes images " +
                            std::to_string(mix.own) + " and " + std::to_string(mix.partner) +
                            " of a batch of " + std::to_string(spec.in_batch));
    }
    // Or a blend of bytes might not be a byte.
    if (!(mix.own_weight >= 0 && mix.partner_weight >= 0 &&
          mix.own_weight + mix.partner_weight <= 1.0001f)) {
      throw InvalidArgument("augment: record " + std::to_string(n) + " has the weights " +
                            std::to_string(mix.own_weight) + " and " +
                            std::to_string(mix.partner_weight) + "; they must add up to 1");
    }
    if (mix.boxes > spec.max_boxes) {
      throw InvalidArgument("augment: record " + std::to_string(n) + " has " +
                            std::to_string(mix.boxes) + " boxes; there is room for " +
                            std::to_string(spec.max_boxes));
    }
  }
}

namespace {

/// A box cut off where the image ends.
struct Range {
  template <class Box>
  Range(const Box& box, const NormalizeSpec& spec)
      : top(clamped(box.top, spec.height)),
        bottom(clamped(box.bottom, spec.height)),
        left(clamped(box.left, spec.width)),
        right(clamped(box.right, spec.width)) {}

  static size_t clamped(int32_t edge, size_t end) {
    return std::min(end, static_cast<size_t>(std::max(edge, 0)));
  }

  bool empty() const { return top >= bottom || left >= right; }

  size_t top, bottom, left, right;
};

/// Distances between an image's values, in values.
struct Strides {
  Strides(const NormalizeSpec& spec, Layout layout)
      : channel(layout == Layout::kNchw ? spec.pixels_per_image() : 1),
        pixel(layout == Layout::kNchw ? 1 : static_cast<size_t>(spec.channels)) {}

  size_t channel, pixel;
};

/// One image at a time by the vector code that normalises whole batches; only what the records
/// change goes through loops of its own. The same bits as the kernel's, which makes each value by
/// itself.
template <FloatType kType>
class Augmenter {
 public:
  using Bits = typename FloatBits<kType>::Type;

  Augmenter(const AugmentSpec& spec, const void* records, const uint8_t* in)
      : spec_(spec),
        records_(records, spec.normalize.batch),
        in_(in),
        one_(spec.normalize),
        floats_(spec.normalize),
        values_(spec.normalize.pixels_per_image() * static_cast<size_t>(spec.normalize.channels)) {
    one_.batch = 1;
    floats_.batch = 1;
    floats_.out_type = FloatType::kFloat32;
  }

  void run(Bits* out) {
    for (size_t n = 0; n < spec_.normalize.batch; ++n) {
      if (spec_.blend == Blend::kBytes) {
        blend_bytes(n, out + n * values_);
      } else {
        blend_floats(n, out + n * values_);
      }
    }
  }

 private:
  const uint8_t* image(size_t n) const { return in_ + n * values_; }

  void blend_bytes(size_t n, Bits* out) {
    const MixRecord& mix = records_.mix[n];
    const uint8_t* own = image(mix.own);
    const uint8_t* partner = image(mix.partner);
    const Range cut(mix, one_);
    if (mix.own_weight != 1 || !cut.empty()) {
      bytes_.resize(values_);
      if (mix.own_weight == 1) {
        std::memcpy(bytes_.data(), own, values_);
      } else {
        for (size_t i = 0; i < values_; ++i) {
          bytes_[i] = static_cast<uint8_t>(augment_detail::round_to_whole(
              augment_detail::blend(static_cast<float>(own[i]), mix.own_weight,
                                    static_cast<float>(partner[i]), mix.partner_weight)));
        }
      }
      copy_box(cut, Strides(one_, one_.in_layout), partner, bytes_.data());
      own = bytes_.data();
    }
    active_isa().normalize(one_, own, out);
    erase<kType>(n, out);
  }

  void blend_floats(size_t n, Bits* out) {
    const MixRecord& mix = records_.mix[n];
    if (mix.own_weight == 1) {
      make<kType>(mix.own, one_, out);
    } else {
      own_.resize(values_);
      partner_.resize(values_);
      make<FloatType::kFloat32>(mix.own, floats_, own_.data());
      make<FloatType::kFloat32>(mix.partner, floats_, partner_.data());
      for (size_t i = 0; i < values_; ++i) {
        out[i] = round_to<kType>(augment_detail::blend(as_float(own_[i]), mix.own_weight,
                                                       as_float(partner_[i]), mix.partner_weight));
      }
    }
    const Range cut(mix, one_);
    if (!cut.empty()) {
      other_.resize(values_);
      make<kType>(mix.partner, one_, other_.data());
      copy_box(cut, Strides(one_, one_.out_layout), other_.data(), out);
    }
  }

  static float as_float(uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  template <FloatType kInto>
  void make(size_t n, const NormalizeSpec& spec, typename FloatBits<kInto>::Type* out) {
    active_isa().normalize(spec, image(n), out);
    erase<kInto>(n, out);
  }

  template <FloatType kInto>
  void erase(size_t n, typename FloatBits<kInto>::Type* out) {
    const Strides strides(one_, one_.out_layout);
    Deviates of_boxes(kNormalTable, records_.mix[n].key, kPerBoxOperation);
    Deviates of_elements(kNormalTable, records_.mix[n].key, kPerElementOperation);
    for (uint32_t box = 0; box < records_.mix[n].boxes; ++box) {
      const Range range(records_.boxes[n * spec_.max_boxes + box], one_);
      for (uint32_t c = 0; c < static_cast<uint32_t>(one_.channels); ++c) {
        float value = 0;
        if (spec_.fill == Fill::kPerBox) value = of_boxes.get(box * 4 + c);
        if (spec_.fill == Fill::kConstant) value = records_.constant(c);
        for (size_t y = range.top; y < range.bottom; ++y) {
          for (size_t x = range.left; x < range.right; ++x) {
            const size_t pixel = y * one_.width + x;
            if (spec_.fill == Fill::kPerElement) {
              const size_t element = c * one_.pixels_per_image() + pixel;
              value = of_elements.get(static_cast<uint32_t>(element));
            }
            out[c * strides.channel + pixel * strides.pixel] = round_to<kInto>(value);
          }
        }
      }
    }
  }

  template <class Value>
  void copy_box(const Range& box, const Strides& strides, const Value* from, Value* to) const {
    if (box.empty()) return;
    for (size_t c = 0; c < static_cast<size_t>(one_.channels); ++c) {
      for (size_t y = box.top; y < box.bottom; ++y) {
        for (size_t x = box.left; x < box.right; ++x) {
          const size_t at = c * strides.channel + (y * one_.width + x) * strides.pixel;
          to[at] = from[at];
        }
      }
    }
  }

  const AugmentSpec& spec_;
  const Records records_;
  const uint8_t* in_;
  NormalizeSpec one_;     // one image
  NormalizeSpec floats_;  // one image, before it is rounded to the output type
  const size_t values_;
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> own_;  // float32 bits, as normalise writes them
  std::vector<uint32_t> partner_;
  std::vector<Bits> other_;
};

template <FloatType kType>
void augment_typed(const AugmentSpec& spec, const void* records, const uint8_t* in, void* out) {
  using Bits = typename FloatBits<kType>::Type;
  Augmenter<kType>(spec, records, in).run(static_cast<Bits*>(out));
}

}  // namespace

void augment(const AugmentSpec& spec, const void* records, const uint8_t* in, void* out) {
  validate(spec);
  validate_records(spec, records);
  switch (spec.normalize.out_type) {
    case FloatType::kFloat32:
      return augment_typed<FloatType::kFloat32>(spec, records, in, out);
    case FloatType::kFloat16:
      return augment_typed<FloatType::kFloat16>(spec, records, in, out);
    case FloatType::kBFloat16:
      return augment_typed<FloatType::kBFloat16>(spec, records, in, out);
  }
}

}  // namespace fastloader
