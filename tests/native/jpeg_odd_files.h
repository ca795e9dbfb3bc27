#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "jpeg_coefficients.h"
#include "jpeg_odd_traits.h"
#include "jpeg_odd_writer.h"
#include "jpeg_samples.h"

namespace fastloader::testing {

/// A JPEG that is clean, and as odd as one may be.
struct OddJpeg {
  uint64_t number = 0;
  std::vector<uint8_t> bytes;
  JpegCoefficients coefficients;  ///< that went in
  OddTraits traits;

  /// For a message about it.
  std::string name() const {
    return "odd JPEG " + std::to_string(number) + " (" + std::to_string(coefficients.width) + "x" +
           std::to_string(coefficients.height) + ", " + traits.text() + ")";
  }
};

namespace odd_detail {

struct Sampling {
  OddTrait trait;
  int planes;
  JpegSampling first;
};

constexpr Sampling kSamplings[] = {
    {OddTrait::kGrey, 1, {1, 1}}, {OddTrait::k444, 3, {1, 1}}, {OddTrait::k422, 3, {2, 1}},
    {OddTrait::k420, 3, {2, 2}},  {OddTrait::k440, 3, {1, 2}},
};

/// What 8-bit samples come to: more is nothing that an encoder writes.
constexpr int kLargest = 1023;

inline int16_t limited(int value) {
  return static_cast<int16_t>(std::clamp(value, -kLargest, kLargest));
}

/// As if the encoder had been given these factors.
inline void requantize(JpegPlane& plane, const JpegQuantization& factors) {
  for (JpegCoefficientBlock& block : plane.blocks) {
    for (size_t k = 0; k < kJpegBlock; ++k) {
      const int value = limited(block[k] * plane.quantization[k]);
      const int half = value < 0 ? -factors[k] / 2 : factors[k] / 2;
      block[k] = limited((value + half) / factors[k]);
    }
  }
  plane.quantization = factors;
}

inline JpegQuantization random_factors(Random& random) {
  JpegQuantization factors;
  const uint32_t kind = random.below(4);
  for (uint16_t& factor : factors) {
    const uint32_t bits = random.between(0, kind == 3 ? 15 : 7);
    factor = static_cast<uint16_t>(kind == 0 ? 1 : random.between(1u << bits, (2u << bits) - 1));
  }
  return factors;
}

/// Some of the blocks hold coefficients anywhere, up to the last one.
inline void make_dense(JpegPlane& plane, Random& random) {
  for (JpegCoefficientBlock& block : plane.blocks) {
    if (!random.chance(30)) continue;
    int left = kLargest;  // of what the block's coefficients come to, so that samples stay samples
    for (size_t k = random.chance(60) ? 63 : random.below(64); left > 0; k = random.below(64)) {
      const int factor = plane.quantization[k];
      const int most = std::max(1, left / factor);
      const int most_now = random.chance(70) ? std::min(most, 3) : most;
      const int value = static_cast<int>(random.between(1, static_cast<uint32_t>(most_now)));
      if (value * factor > kLargest + factor / 2) break;
      block[k] = limited(random.chance(50) ? value : -value);
      left -= value * factor;
    }
  }
}

/// A decoder is to drop them.
inline void fill_mcus(JpegPlane& plane, Random& random) {
  for (uint32_t y = 0; y < plane.rows; ++y) {
    for (uint32_t x = 0; x < plane.stride; ++x) {
      if (x < plane.across && y < plane.down) continue;
      for (size_t k = 0; k < kJpegBlock; ++k) {
        const int most = kLargest / 8 / plane.quantization[k];
        const int value = static_cast<int>(random.below(static_cast<uint32_t>(most) + 1));
        plane.at(x, y)[k] = limited(random.chance(50) ? value : -value);
      }
    }
  }
}

inline void change(OddJpeg& odd, Random& random) {
  std::vector<JpegPlane>& planes = odd.coefficients.planes;
  if (random.chance(40)) {
    JpegQuantization factors = random_factors(random);
    const bool differ = planes.size() > 1 && random.chance(50);
    odd.traits.add_if(differ, OddTrait::kPlanesDiffer);
    for (JpegPlane& plane : planes) {
      requantize(plane, factors);
      if (differ) factors = random_factors(random);
    }
  }
  if (random.chance(30)) {
    odd.traits.add(OddTrait::kDense);
    for (JpegPlane& plane : planes) make_dense(plane, random);
  }
  if (random.chance(40)) {
    for (JpegPlane& plane : planes) {
      odd.traits.add_if(plane.stride > plane.across || plane.rows > plane.down,
                        OddTrait::kFilledMcus);
      fill_mcus(plane, random);
    }
  }
}

/// Lets libjpeg write the picture in a form of its own.
inline void write_by_libjpeg(OddJpeg& odd, JpegSpec spec, Random& random) {
  spec.progressive = random.chance(50);
  spec.separate_scans = !spec.progressive && random.chance(20);
  spec.optimize = random.chance(50);
  if (random.chance(30)) spec.restart_blocks = random.between(1, 9);
  if (random.chance(15)) spec.restart_rows = static_cast<int>(random.between(1, 2));
  odd.bytes = make_jpeg(spec);
  const uint8_t first_restart[] = {0xff, 0xd0};
  const auto end = odd.bytes.end();
  odd.traits.add_if(std::search(odd.bytes.begin(), end, first_restart, first_restart + 2) != end,
                    OddTrait::kRestarts);
  odd.traits.add(OddTrait::kByLibjpeg);
  odd.traits.add(OddTrait::kJfif);
  odd.traits.add(spec.progressive ? OddTrait::kProgressive : OddTrait::kBaseline);
  odd.traits.add_if(spec.progressive, OddTrait::kUsualScript);
  odd.traits.add_if(spec.separate_scans && spec.components() > 1, OddTrait::kSeveralScans);
  odd.traits.add(spec.optimize || spec.progressive ? OddTrait::kOptimalHuffman
                                                   : OddTrait::kStandardHuffman);
  odd.traits.add_if(spec.restart_rows > 0, OddTrait::kRowInterval);
}

}  // namespace odd_detail

/// The same file for the same number, on every machine.
inline OddJpeg make_odd_jpeg(uint64_t number) {
  Random random(0x6f6464 + number * 0x9e3779b97f4a7c15u);
  OddJpeg odd;
  odd.number = number;
  const odd_detail::Sampling& sampling = odd_detail::kSamplings[random.below(5)];
  JpegSpec spec;
  spec.width = random.chance(8) ? 1 : random.between(1, 70);
  spec.height = random.chance(8) ? 1 : random.between(1, 70);
  spec.stored = sampling.planes == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
  spec.sampling[0] = sampling.first;
  spec.quality = static_cast<int>(random.between(1, 100));
  spec.seed = random.next();
  odd.traits.add(sampling.trait);
  odd.traits.add_if(spec.width == 1 || spec.height == 1, OddTrait::kOnePixelEdge);
  odd.coefficients = read_coefficients(make_jpeg(spec));
  if (random.chance(20)) {
    odd_detail::write_by_libjpeg(odd, spec, random);
    return odd;
  }
  odd_detail::change(odd, random);
  odd.bytes = OddJpegWriter(odd.coefficients, random, odd.traits).write();
  return odd;
}

}  // namespace fastloader::testing
