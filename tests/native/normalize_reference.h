#pragma once

// What normalise must give, computed without any of the code under test, and the cases to try.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "image/normalize/normalize.h"

namespace fastloader::testing {

// ---- An independent reference -------------------------------------------------------------------

inline double bits_to_double(uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint64_t double_to_bits(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// x * scale + bias, rounded once, without any fma: the product of 8 and 24 bits is exact in
/// double; the sum is rounded to odd, after which rounding to 24 bits is as if done directly.
inline float exact_fma(uint8_t x, float scale, float bias) {
  const double product = static_cast<double>(x) * static_cast<double>(scale);
  const double addend = static_cast<double>(bias);
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  uint64_t bits = double_to_bits(sum);
  if (error != 0 && (bits & 1) == 0) bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
  return static_cast<float>(bits_to_double(bits));
}

/// All numbers of a 16-bit type that are not negative, by their bits; the last stands in infinity's
/// place and is the power of two that would follow, which is where rounding draws the line.
inline std::vector<double> numbers(int mantissa_bits, int bias) {
  const int exponents = 1 << (15 - mantissa_bits);
  std::vector<double> all;
  for (int exponent = 0; exponent < exponents - 1; ++exponent) {
    for (int mantissa = 0; mantissa < 1 << mantissa_bits; ++mantissa) {
      const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      all.push_back(std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits));
    }
  }
  all.push_back(std::ldexp(1, exponents - 1 - bias));
  return all;
}

inline const std::vector<double>& numbers_of(FloatType type) {
  static const std::vector<double> half = numbers(10, 15);
  static const std::vector<double> bfloat = numbers(7, 127);
  return type == FloatType::kFloat16 ? half : bfloat;
}

inline uint32_t reference_bits(float value, FloatType type) {
  if (type == FloatType::kFloat32) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  const std::vector<double>& all = numbers_of(type);
  const double magnitude = std::fabs(static_cast<double>(value));
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const auto above = std::lower_bound(all.begin(), all.end(), magnitude);
  if (above == all.end()) return sign | static_cast<uint32_t>(all.size() - 1);
  const uint32_t index = static_cast<uint32_t>(above - all.begin());
  if (*above == magnitude) return sign | index;
  const double over = *above - magnitude;
  const double under = magnitude - all[index - 1];
  const bool up = over < under || (over == under && index % 2 == 0);
  return sign | (up ? index : index - 1);
}

// ---- Cases --------------------------------------------------------------------------------------

constexpr FloatType kTypes[] = {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBFloat16};
constexpr Layout kLayouts[] = {Layout::kNchw, Layout::kNhwc};

enum class Values { kImageNet, kExtreme, kTies };

inline NormalizeSpec make_spec(size_t batch, size_t height, size_t width, int channels, Layout in,
                               Layout out, FloatType type, Values values = Values::kImageNet) {
  constexpr double kMean[] = {0.485, 0.456, 0.406, 0.5};
  constexpr double kStd[] = {0.229, 0.224, 0.225, 0.25};
  // Beyond the range of float32, subnormal in float16, subnormal in float32, negative.
  constexpr float kExtremeScale[] = {1.5e36f, 3.1e-8f, 3e-43f, -0.37f};
  constexpr float kExtremeBias[] = {-7e37f, 5e-7f, -1e-41f, 13.7f};
  // In steps of a quarter of the 16-bit type's last place; exactly, just above and just below.
  constexpr float kTiesBias[] = {1, 1 + 0x1p-23f, 1 - 0x1p-23f, -0.5f};
  const float quarter = type == FloatType::kFloat16 ? 0x1p-12f : 0x1p-9f;
  NormalizeSpec spec;
  spec.batch = batch;
  spec.height = height;
  spec.width = width;
  spec.channels = channels;
  spec.in_layout = in;
  spec.out_layout = out;
  spec.out_type = type;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    switch (values) {
      case Values::kImageNet:
        spec.scale[c] = static_cast<float>(1 / (255 * kStd[c]));
        spec.bias[c] = static_cast<float>(-kMean[c] / kStd[c]);
        break;
      case Values::kExtreme:
        spec.scale[c] = kExtremeScale[c];
        spec.bias[c] = kExtremeBias[c];
        break;
      case Values::kTies:
        spec.scale[c] = c == 3 ? -quarter : quarter;
        spec.bias[c] = kTiesBias[c];
        break;
    }
  }
  return spec;
}

inline size_t position(const NormalizeSpec& spec, Layout layout, size_t n, size_t p, size_t c) {
  const size_t channels = static_cast<size_t>(spec.channels);
  const size_t pixels = spec.pixels_per_image();
  return layout == Layout::kNchw ? (n * channels + c) * pixels + p
                                 : (n * pixels + p) * channels + c;
}

/// The input of a spec and what must come out. With 256 pixels or more, every channel takes all
/// 256 values.
struct Expected {
  explicit Expected(const NormalizeSpec& spec) : in(spec.in_bytes()), out(spec.out_bytes()) {
    const size_t size = bytes_per_element(spec.out_type);
    for (size_t c = 0; c < static_cast<size_t>(spec.channels); ++c) {
      uint32_t table[256];
      for (size_t x = 0; x < 256; ++x) {
        const float y = exact_fma(static_cast<uint8_t>(x), spec.scale[c], spec.bias[c]);
        table[x] = reference_bits(y, spec.out_type);
      }
      for (size_t n = 0; n < spec.batch; ++n) {
        for (size_t p = 0; p < spec.pixels_per_image(); ++p) {
          const uint8_t x = static_cast<uint8_t>(p * 7 + c * 85 + n * 31);
          in[position(spec, spec.in_layout, n, p, c)] = x;
          // Both architectures are little-endian: the low bytes come first.
          std::memcpy(out.data() + position(spec, spec.out_layout, n, p, c) * size, &table[x],
                      size);
        }
      }
    }
  }

  std::vector<uint8_t> in;
  std::vector<uint8_t> out;
};

inline std::string describe(const NormalizeSpec& spec) {
  std::ostringstream text;
  text << spec.batch << "x" << spec.channels << "x" << spec.height << "x" << spec.width
       << " in_layout " << static_cast<int>(spec.in_layout) << " out_layout "
       << static_cast<int>(spec.out_layout) << " type " << static_cast<int>(spec.out_type);
  return text.str();
}

template <class Body>
void for_each_kind(Body body) {
  for (FloatType type : kTypes) {
    for (int channels = 1; channels <= kMaxChannels; ++channels) {
      for (Layout in : kLayouts) {
        for (Layout out : kLayouts) body(channels, in, out, type);
      }
    }
  }
}

}  // namespace fastloader::testing
