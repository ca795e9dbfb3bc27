#include "image/normalize/runs.h"

#if defined(__x86_64__)

#include "image/normalize/x86.h"

#define FASTLOADER_AVX2 __attribute__((target("avx2,fma,f16c")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace fastloader {
namespace {

/// The upper halves of the lanes are the bfloat16s.
FASTLOADER_AVX2_INLINE __m256i round_bfloat16(__m256 y) {
  const __m256i bits = _mm256_castps_si256(y);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

/// Rounds and stores 16 elements.
template <FloatType kType>
FASTLOADER_AVX2_INLINE void store_pair(uint8_t* out, __m256 low, __m256 high) {
  __m256i* to = reinterpret_cast<__m256i*>(out);
  if constexpr (kType == FloatType::kFloat32) {
    _mm256_storeu_si256(to, _mm256_castps_si256(low));
    _mm256_storeu_si256(to + 1, _mm256_castps_si256(high));
  } else if constexpr (kType == FloatType::kFloat16) {
    _mm256_storeu_si256(to, _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                                             _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT)));
  } else {
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(round_bfloat16(low), 16),
                                               _mm256_srli_epi32(round_bfloat16(high), 16));
    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(packed, 0xd8));  // packing is per 128 bits
  }
}

FASTLOADER_AVX2_INLINE __m256 load_floats(const uint8_t* in) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

template <int kChannels>
FASTLOADER_AVX2_INLINE __m256i load_8_pixels(const uint8_t* in) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 4 * kChannels));
  return _mm256_set_m128i(high, low);
}

template <FloatType kType, int kChannels, int kChannel>
FASTLOADER_AVX2_INLINE void split_channel(__m256i low, __m256i high, const NormalizeSpec& spec,
                                          uint8_t* out) {
  const __m256i shuffle = _mm256_broadcastsi128_si256(
      x86::load_shuffle(x86::SplitShuffle<kChannels, kChannel>::kValue));
  const __m256 scale = _mm256_set1_ps(spec.scale[kChannel]);
  const __m256 bias = _mm256_set1_ps(spec.bias[kChannel]);
  const __m256 x0 = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(low, shuffle));
  const __m256 x1 = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(high, shuffle));
  store_pair<kType>(out, _mm256_fmadd_ps(x0, scale, bias), _mm256_fmadd_ps(x1, scale, bias));
}

struct Avx2 {
  template <FloatType kType>
  FASTLOADER_AVX2 static void affine(const uint8_t* in, size_t count, const Pattern& pattern,
                                     uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    const __m256 scale0 = _mm256_load_ps(pattern.scale);
    const __m256 scale1 = _mm256_load_ps(pattern.scale + 8);
    const __m256 scale2 = _mm256_load_ps(pattern.scale + 16);
    const __m256 bias0 = _mm256_load_ps(pattern.bias);
    const __m256 bias1 = _mm256_load_ps(pattern.bias + 8);
    const __m256 bias2 = _mm256_load_ps(pattern.bias + 16);
    size_t i = 0;
    for (; i + kPatternLength <= count; i += kPatternLength) {
      const uint8_t* from = in + i;
      uint8_t* to = out + i * kBytes;
      store_pair<kType>(to, _mm256_fmadd_ps(load_floats(from), scale0, bias0),
                        _mm256_fmadd_ps(load_floats(from + 8), scale1, bias1));
      store_pair<kType>(to + 16 * kBytes, _mm256_fmadd_ps(load_floats(from + 16), scale2, bias2),
                        _mm256_fmadd_ps(load_floats(from + 24), scale0, bias0));
      store_pair<kType>(to + 32 * kBytes, _mm256_fmadd_ps(load_floats(from + 32), scale1, bias1),
                        _mm256_fmadd_ps(load_floats(from + 40), scale2, bias2));
    }
    for (size_t k = 0; i < count; ++i, ++k) {
      normalize_element<kType>(in[i], pattern.scale[k], pattern.bias[k], out + i * kBytes);
    }
  }

  template <FloatType kType, int kChannels>
  FASTLOADER_AVX2 static void split(const uint8_t* in, size_t pixels, const NormalizeSpec& spec,
                                    uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    // The last of the four loads starts at the 12th pixel and takes 16 bytes, more than the 4
    // pixels that are left unless there are 4 channels.
    constexpr size_t kReadPixels = 12 + (16 + kChannels - 1) / kChannels;
    const size_t plane = pixels * kBytes;
    size_t p = 0;
    for (; p + kReadPixels <= pixels; p += 16) {
      const __m256i low = load_8_pixels<kChannels>(in + p * kChannels);
      const __m256i high = load_8_pixels<kChannels>(in + (p + 8) * kChannels);
      uint8_t* to = out + p * kBytes;
      split_channel<kType, kChannels, 0>(low, high, spec, to);
      split_channel<kType, kChannels, 1>(low, high, spec, to + plane);
      if constexpr (kChannels > 2) {
        split_channel<kType, kChannels, 2>(low, high, spec, to + 2 * plane);
      }
      if constexpr (kChannels > 3) {
        split_channel<kType, kChannels, 3>(low, high, spec, to + 3 * plane);
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
    x86::merge<kChannels>(in, plane, pixels, out);
  }
};

}  // namespace

void normalize_avx2(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  normalize_runs<Avx2>(spec, in, out);
}

}  // namespace fastloader

#endif
