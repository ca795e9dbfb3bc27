#pragma once

// What augment must give, by the steps of its definition on whole images, one after the other and
// without the code under test, and random cases to try.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "image/normalize/augment.h"
#include "image/philox.h"
#include "normalize_reference.h"

namespace fastloader::testing {

constexpr Fill kFills[] = {Fill::kZero, Fill::kPerBox, Fill::kPerElement, Fill::kConstant};
constexpr float kConstants[kMaxChannels] = {-1.25f, 0.3f, 1e-6f, 7e4f};
constexpr Blend kBlends[] = {Blend::kFloats, Blend::kBytes};

/// A spec with records and input, and what must come out.
struct AugmentCase {
  AugmentSpec spec;
  std::vector<MixRecord> mix;
  std::vector<EraseBox> boxes;
  std::vector<uint8_t> in;
  std::vector<uint8_t> out;

  std::vector<uint8_t> records() const {
    std::vector<uint8_t> packed(spec.record_bytes());
    uint8_t* to = packed.data();
    std::memcpy(to, kConstants, sizeof kConstants);
    to += sizeof kConstants;
    if (!mix.empty()) std::memcpy(to, mix.data(), mix.size() * sizeof(MixRecord));
    to += mix.size() * sizeof(MixRecord);
    if (!boxes.empty()) std::memcpy(to, boxes.data(), boxes.size() * sizeof(EraseBox));
    return packed;
  }
};

inline float reference_deviate(const MixRecord& mix, uint32_t operation, size_t element) {
  const auto words =
      philox4x32({static_cast<uint32_t>(element / 8), operation, mix.key[0], mix.key[1]}, {0, 0});
  uint16_t halves[8];
  for (size_t i = 0; i < 4; ++i) {
    halves[2 * i] = static_cast<uint16_t>(words[i]);
    halves[2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
  }
  const uint16_t bits = halves[element % 8];
  const double magnitude = std::ldexp(kNormalTable[bits & 2047], -16);
  return static_cast<float>((bits >> 11) % 2 == 1 ? -magnitude : magnitude);
}

/// Images as planes of values, [channel][pixel].
template <class Value>
using Planes = std::vector<std::vector<Value>>;

class AugmentReference {
 public:
  explicit AugmentReference(AugmentCase& test)
      : test_(test),
        spec_(test.spec.normalize),
        channels_(static_cast<size_t>(spec_.channels)),
        pixels_(spec_.pixels_per_image()) {}

  void fill_in_expected() {
    const size_t size = bytes_per_element(spec_.out_type);
    test_.out.assign(spec_.out_bytes(), 0);
    for (size_t n = 0; n < spec_.batch; ++n) {
      const Planes<float> image = made(n);
      for (size_t c = 0; c < channels_; ++c) {
        for (size_t p = 0; p < pixels_; ++p) {
          const uint32_t bits = reference_bits(image[c][p], spec_.out_type);
          std::memcpy(test_.out.data() + position(spec_, spec_.out_layout, n, p, c) * size, &bits,
                      size);
        }
      }
    }
  }

 private:
  Planes<float> made(size_t n) const {
    const MixRecord& mix = test_.mix[n];
    if (test_.spec.blend == Blend::kBytes) {
      return erased(n, normalized(mixed(bytes(mix.own), bytes(mix.partner), mix, true)));
    }
    return mixed(erased(mix.own, normalized(bytes(mix.own))),
                 erased(mix.partner, normalized(bytes(mix.partner))), mix, false);
  }

  Planes<float> bytes(size_t image) const {
    Planes<float> planes(channels_, std::vector<float>(pixels_));
    for (size_t c = 0; c < channels_; ++c) {
      for (size_t p = 0; p < pixels_; ++p) {
        planes[c][p] = test_.in[position(spec_, spec_.in_layout, image, p, c)];
      }
    }
    return planes;
  }

  Planes<float> normalized(Planes<float> planes) const {
    for (size_t c = 0; c < channels_; ++c) {
      for (float& value : planes[c]) {
        value = exact_fma(static_cast<uint8_t>(value), spec_.scale[c], spec_.bias[c]);
      }
    }
    return planes;
  }

  Planes<float> erased(size_t image, Planes<float> planes) const {
    for (uint32_t b = 0; b < test_.mix[image].boxes; ++b) {
      const EraseBox& box = test_.boxes[image * test_.spec.max_boxes + b];
      for (size_t c = 0; c < channels_; ++c) {
        for (size_t p = 0; p < pixels_; ++p) {
          if (!inside(box, p)) continue;
          if (test_.spec.fill == Fill::kZero) planes[c][p] = 0;
          if (test_.spec.fill == Fill::kConstant) planes[c][p] = kConstants[c];
          if (test_.spec.fill == Fill::kPerBox) {
            planes[c][p] = reference_deviate(test_.mix[image], 16, b * 4 + c);
          }
          if (test_.spec.fill == Fill::kPerElement) {
            planes[c][p] = reference_deviate(test_.mix[image], 17, c * pixels_ + p);
          }
        }
      }
    }
    return planes;
  }

  Planes<float> mixed(const Planes<float>& own, const Planes<float>& partner, const MixRecord& mix,
                      bool whole) const {
    Planes<float> planes = own;
    for (size_t c = 0; c < channels_; ++c) {
      for (size_t p = 0; p < pixels_; ++p) {
        if (inside(mix, p)) {
          planes[c][p] = partner[c][p];
        } else if (mix.own_weight != 1) {
          // Volatile: each operation is rounded by itself.
          volatile float first = own[c][p] * mix.own_weight;
          volatile float second = partner[c][p] * mix.partner_weight;
          volatile float sum = first + second;
          planes[c][p] = whole ? std::nearbyint(sum) : sum;
        }
      }
    }
    return planes;
  }

  template <class Box>
  bool inside(const Box& box, size_t pixel) const {
    const int y = static_cast<int>(pixel / spec_.width);
    const int x = static_cast<int>(pixel % spec_.width);
    return box.top <= y && y < box.bottom && box.left <= x && x < box.right;
  }

  AugmentCase& test_;
  const NormalizeSpec& spec_;
  const size_t channels_;
  const size_t pixels_;
};

/// Records of every kind: left alone, blended, cut, and (which Python never draws) both; of the
/// image in the same place and (which Python never draws either) of any other; boxes that overlap,
/// are empty, reach to the edge or beyond it.
inline AugmentCase make_augment_case(const NormalizeSpec& normalize, Fill fill, Blend blend,
                                     size_t max_boxes, std::mt19937& random) {
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const auto box = [&](auto* to) {
    const auto range = [&](size_t edge, int32_t* from, int32_t* until) {
      const size_t a = below(edge + 1);
      const size_t b = below(edge + 1);
      *from = static_cast<int32_t>(std::min(a, b));
      *until = static_cast<int32_t>(std::max(a, b));
    };
    range(normalize.height, &to->top, &to->bottom);
    range(normalize.width, &to->left, &to->right);
    // Beyond the image, or the wrong way round.
    if (below(8) != 0) return;
    for (int32_t* edge : {&to->top, &to->bottom, &to->left, &to->right}) {
      const int32_t last = std::numeric_limits<int32_t>::max();
      const int32_t wild[] = {-last - 1, -1, static_cast<int32_t>(normalize.width) + 1, last};
      if (below(2) == 0) *edge = wild[below(4)];
    }
  };
  AugmentCase made;
  made.spec.normalize = normalize;
  made.spec.in_batch = blend == Blend::kBytes ? 2 * normalize.batch : normalize.batch;
  made.spec.max_boxes = max_boxes;
  made.spec.fill = fill;
  made.spec.blend = blend;
  for (size_t n = 0; n < normalize.batch; ++n) {
    MixRecord mix{};
    for (uint32_t& word : mix.key) word = static_cast<uint32_t>(random());
    mix.own = static_cast<uint32_t>(n);
    mix.partner = static_cast<uint32_t>(made.spec.in_batch - 1 - n);
    if (below(2) == 0) {
      mix.own = static_cast<uint32_t>(below(made.spec.in_batch));
      mix.partner = static_cast<uint32_t>(below(made.spec.in_batch));
    }
    mix.own_weight = 1;
    // Then a weight of the partner changes nothing.
    if (below(2) == 0) mix.partner_weight = 0x1p-15f;
    const size_t kind = below(4);
    if (kind % 2 == 1) {
      mix.own_weight = static_cast<float>(below(1000)) / 1000;
      mix.partner_weight = 1 - mix.own_weight;
    }
    if (kind >= 2) box(&mix);
    mix.boxes = static_cast<uint32_t>(below(max_boxes + 1));
    made.mix.push_back(mix);
  }
  made.boxes.resize(normalize.batch * max_boxes);
  for (EraseBox& each : made.boxes) box(&each);
  made.in.resize(made.spec.in_bytes());
  for (uint8_t& byte : made.in) byte = static_cast<uint8_t>(random());
  AugmentReference(made).fill_in_expected();
  return made;
}

/// Every fill, blend, type, number of channels and pair of layouts, at sizes around a vector's and
/// a block's: rows of whole vectors, odd rows and images, rows of about a vector and of less than
/// one, a last block of less than a vector. Or one in `share` of these cases.
template <class Body>
void for_each_augment_case(Body body, size_t share = 1) {
  constexpr size_t kSizes[][3] = {{1, 1, 1},   {2, 3, 5},   {4, 7, 9},    {3, 16, 16},
                                  {0, 4, 4},   {2, 0, 3},   {2, 16, 112}, {2, 29, 71},
                                  {3, 140, 9}, {2, 300, 3}, {3, 257, 1},  {3, 513, 1}};
  std::mt19937 random(17);
  size_t number = 0;
  for (const auto& size : kSizes) {
    for_each_kind([&](int channels, Layout in, Layout out, FloatType type) {
      for (const Fill fill : kFills) {
        for (const Blend blend : kBlends) {
          if (++number % share != 0) continue;
          body(make_augment_case(make_spec(size[0], size[1], size[2], channels, in, out, type),
                                 fill, blend, random() % 4, random));
        }
      }
    });
  }
}

inline std::string describe(const AugmentSpec& spec) {
  return describe(spec.normalize) + " fill " + std::to_string(static_cast<int>(spec.fill)) +
         " blend " + std::to_string(static_cast<int>(spec.blend)) + " boxes " +
         std::to_string(spec.max_boxes);
}

}  // namespace fastloader::testing
