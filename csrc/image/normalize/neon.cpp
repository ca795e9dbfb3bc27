#include "image/normalize/runs.h"

#if defined(__aarch64__)

#include <arm_neon.h>

namespace fastloader {
namespace {

inline uint16x8_t round_bfloat16(float32x4_t low, float32x4_t high) {
  const uint32x4_t low_bits = vreinterpretq_u32_f32(low);
  const uint32x4_t high_bits = vreinterpretq_u32_f32(high);
  const uint32x4_t half = vdupq_n_u32(0x7fff);
  const uint32x4_t one = vdupq_n_u32(1);
  const uint32x4_t low_odd = vandq_u32(vshrq_n_u32(low_bits, 16), one);
  const uint32x4_t high_odd = vandq_u32(vshrq_n_u32(high_bits, 16), one);
  return vshrn_high_n_u32(vshrn_n_u32(vaddq_u32(vaddq_u32(low_bits, half), low_odd), 16),
                          vaddq_u32(vaddq_u32(high_bits, half), high_odd), 16);
}

/// Rounds and stores 8 elements.
template <FloatType kType>
inline void store_pair(uint8_t* out, float32x4_t low, float32x4_t high) {
  if constexpr (kType == FloatType::kFloat32) {
    vst1q_u8(out, vreinterpretq_u8_f32(low));
    vst1q_u8(out + 16, vreinterpretq_u8_f32(high));
  } else if constexpr (kType == FloatType::kFloat16) {
    vst1q_u8(out, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)));
  } else {
    vst1q_u8(out, vreinterpretq_u8_u16(round_bfloat16(low, high)));
  }
}

/// The three vectors of coefficients that a pattern repeats.
struct Coefficients {
  float32x4_t scale[3];
  float32x4_t bias[3];
};

/// 16 elements from 16 bytes; the first takes its coefficients from vector kPhase.
template <FloatType kType, int kPhase>
inline void store_16(uint8_t* out, uint8x16_t bytes, const Coefficients& k) {
  constexpr size_t kBytes = bytes_per_element(kType);
  constexpr int k0 = kPhase;
  constexpr int k1 = (kPhase + 1) % 3;
  constexpr int k2 = (kPhase + 2) % 3;
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_high_u8(bytes);
  const float32x4_t x0 = vcvtq_f32_u32(vmovl_u16(vget_low_u16(low)));
  const float32x4_t x1 = vcvtq_f32_u32(vmovl_high_u16(low));
  const float32x4_t x2 = vcvtq_f32_u32(vmovl_u16(vget_low_u16(high)));
  const float32x4_t x3 = vcvtq_f32_u32(vmovl_high_u16(high));
  store_pair<kType>(out, vfmaq_f32(k.bias[k0], x0, k.scale[k0]),
                    vfmaq_f32(k.bias[k1], x1, k.scale[k1]));
  store_pair<kType>(out + 8 * kBytes, vfmaq_f32(k.bias[k2], x2, k.scale[k2]),
                    vfmaq_f32(k.bias[k0], x3, k.scale[k0]));
}

inline Coefficients same_coefficients(float scale, float bias) {
  const float32x4_t s = vdupq_n_f32(scale);
  const float32x4_t b = vdupq_n_f32(bias);
  return {{s, s, s}, {b, b, b}};
}

struct Neon {
  template <FloatType kType>
  static void affine(const uint8_t* in, size_t count, const Pattern& pattern, uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    Coefficients k;
    for (int v = 0; v < 3; ++v) {
      k.scale[v] = vld1q_f32(pattern.scale + 4 * v);
      k.bias[v] = vld1q_f32(pattern.bias + 4 * v);
    }
    size_t i = 0;
    for (; i + kPatternLength <= count; i += kPatternLength) {
      uint8_t* to = out + i * kBytes;
      store_16<kType, 0>(to, vld1q_u8(in + i), k);
      store_16<kType, 1>(to + 16 * kBytes, vld1q_u8(in + i + 16), k);
      store_16<kType, 2>(to + 32 * kBytes, vld1q_u8(in + i + 32), k);
    }
    for (size_t entry = 0; i < count; ++i, ++entry) {
      normalize_element<kType>(in[i], pattern.scale[entry], pattern.bias[entry], out + i * kBytes);
    }
  }

  template <FloatType kType, int kChannels>
  static void split(const uint8_t* in, size_t pixels, const NormalizeSpec& spec, uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    const size_t plane = pixels * kBytes;
    Coefficients k[static_cast<size_t>(kChannels)];
    for (int c = 0; c < kChannels; ++c) k[c] = same_coefficients(spec.scale[c], spec.bias[c]);
    size_t p = 0;
    for (; p + 16 <= pixels; p += 16) {
      uint8_t* to = out + p * kBytes;
      if constexpr (kChannels == 2) {
        const uint8x16x2_t bytes = vld2q_u8(in + p * 2);
        for (size_t c = 0; c < 2; ++c) store_16<kType, 0>(to + c * plane, bytes.val[c], k[c]);
      } else if constexpr (kChannels == 3) {
        const uint8x16x3_t bytes = vld3q_u8(in + p * 3);
        for (size_t c = 0; c < 3; ++c) store_16<kType, 0>(to + c * plane, bytes.val[c], k[c]);
      } else {
        const uint8x16x4_t bytes = vld4q_u8(in + p * 4);
        for (size_t c = 0; c < 4; ++c) store_16<kType, 0>(to + c * plane, bytes.val[c], k[c]);
      }
    }
    for (; p < pixels; ++p) {
      for (size_t c = 0; c < kChannels; ++c) {
        normalize_element<kType>(in[p * kChannels + c], spec.scale[c], spec.bias[c],
                                 out + c * plane + p * kBytes);
      }
    }
  }

  template <int kChannels>
  static void merge(const uint8_t* in, size_t plane, size_t pixels, uint8_t* out) {
    size_t p = 0;
    for (; p + 16 <= pixels; p += 16) {
      const uint8x16_t a = vld1q_u8(in + p);
      const uint8x16_t b = vld1q_u8(in + plane + p);
      // In parentheses, because Clang's are macros, which take a comma in braces for their own.
      if constexpr (kChannels == 2) {
        vst2q_u8(out + p * 2, (uint8x16x2_t{{a, b}}));
      } else if constexpr (kChannels == 3) {
        vst3q_u8(out + p * 3, (uint8x16x3_t{{a, b, vld1q_u8(in + 2 * plane + p)}}));
      } else {
        vst4q_u8(
            out + p * 4,
            (uint8x16x4_t{{a, b, vld1q_u8(in + 2 * plane + p), vld1q_u8(in + 3 * plane + p)}}));
      }
    }
    for (; p < pixels; ++p) {
      for (size_t c = 0; c < kChannels; ++c) out[p * kChannels + c] = in[c * plane + p];
    }
  }
};

}  // namespace

void normalize_neon(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  normalize_runs<Neon>(spec, in, out);
}

}  // namespace fastloader

#endif
