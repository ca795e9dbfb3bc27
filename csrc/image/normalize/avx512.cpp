#include "image/normalize/runs.h"

#if defined(__x86_64__)

#include "image/avx512.h"
#include "image/normalize/x86.h"

namespace fastloader {
namespace {

struct alignas(64) Indices32 {
  int32_t entries[16];
};

struct alignas(64) Indices16 {
  int16_t entries[32];
};

/// Moves the bytes of 4 pixels each into the four 128-bit lanes.
constexpr Indices32 make_spread(int channels) {
  Indices32 spread{};
  for (int i = 0; i < 16; ++i) spread.entries[i] = i / 4 * channels + i % 4 % channels;
  return spread;
}

template <int kChannels>
struct Spread {
  static constexpr Indices32 kValue = make_spread(kChannels);
};

/// The upper halves of the 32-bit lanes of two vectors.
constexpr Indices16 make_upper_halves() {
  Indices16 halves{};
  for (int i = 0; i < 32; ++i) halves.entries[i] = static_cast<int16_t>(2 * i + 1);
  return halves;
}

constexpr Indices16 kUpperHalves = make_upper_halves();

/// The upper halves of the lanes are the bfloat16s. AVX512_BF16 has an instruction for this, but it
/// takes denormal numbers for zero.
FASTLOADER_AVX512_INLINE __m512i round_bfloat16(__m512 y) {
  const __m512i bits = _mm512_castps_si512(y);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}

/// Rounds and stores 32 elements.
template <FloatType kType>
FASTLOADER_AVX512_INLINE void store_pair(uint8_t* out, __m512 low, __m512 high) {
  if constexpr (kType == FloatType::kFloat32) {
    _mm512_storeu_si512(out, _mm512_castps_si512(low));
    _mm512_storeu_si512(out + 64, _mm512_castps_si512(high));
  } else if constexpr (kType == FloatType::kFloat16) {
    const __m256i low_half = _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT);
    const __m256i high_half = _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT);
    _mm512_storeu_si512(out, _mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1));
  } else {
    const __m512i halves = _mm512_load_si512(kUpperHalves.entries);
    _mm512_storeu_si512(
        out, _mm512_permutex2var_epi16(round_bfloat16(low), halves, round_bfloat16(high)));
  }
}

/// Rounds and stores the elements in `mask`.
template <FloatType kType>
FASTLOADER_AVX512_INLINE void store_some(uint8_t* out, __mmask16 mask, __m512 y) {
  if constexpr (kType == FloatType::kFloat32) {
    _mm512_mask_storeu_epi32(out, mask, _mm512_castps_si512(y));
  } else if constexpr (kType == FloatType::kFloat16) {
    _mm256_mask_storeu_epi16(out, mask, _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
  } else {
    const __m512i bits = _mm512_srli_epi32(round_bfloat16(y), 16);
    _mm256_mask_storeu_epi16(out, mask, _mm512_cvtepi32_epi16(bits));
  }
}

FASTLOADER_AVX512_INLINE __mmask16 first_lanes(size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

FASTLOADER_AVX512_INLINE __m512 to_floats(__m128i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

FASTLOADER_AVX512_INLINE __m512 load_floats(const uint8_t* in) {
  return to_floats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}

/// The bytes of `count` pixels (at most 16), 4 pixels to each 128-bit lane; reads no others.
template <int kChannels>
FASTLOADER_AVX512_INLINE __m512i load_pixels(const uint8_t* in, size_t count) {
  const __m512i spread = _mm512_load_si512(Spread<kChannels>::kValue.entries);
  const size_t bytes = count * kChannels;
  const __mmask64 mask = bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
  return _mm512_permutexvar_epi32(spread, _mm512_maskz_loadu_epi8(mask, in));
}

template <int kChannels, int kChannel>
FASTLOADER_AVX512_INLINE __m512 channel_of(__m512i pixels, const NormalizeSpec& spec) {
  const __m512i shuffle =
      _mm512_broadcast_i32x4(x86::load_shuffle(x86::SplitShuffle<kChannels, kChannel>::kValue));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(pixels, shuffle)),
                         _mm512_set1_ps(spec.scale[kChannel]), _mm512_set1_ps(spec.bias[kChannel]));
}

template <FloatType kType, int kChannels, int kChannel>
FASTLOADER_AVX512_INLINE void split_pair(__m512i low, __m512i high, const NormalizeSpec& spec,
                                         uint8_t* out, size_t plane) {
  if constexpr (kChannel < kChannels) {
    store_pair<kType>(out + kChannel * plane, channel_of<kChannels, kChannel>(low, spec),
                      channel_of<kChannels, kChannel>(high, spec));
    split_pair<kType, kChannels, kChannel + 1>(low, high, spec, out, plane);
  }
}

template <FloatType kType, int kChannels, int kChannel>
FASTLOADER_AVX512_INLINE void split_some(__m512i pixels, __mmask16 mask, const NormalizeSpec& spec,
                                         uint8_t* out, size_t plane) {
  if constexpr (kChannel < kChannels) {
    store_some<kType>(out + kChannel * plane, mask, channel_of<kChannels, kChannel>(pixels, spec));
    split_some<kType, kChannels, kChannel + 1>(pixels, mask, spec, out, plane);
  }
}

struct Avx512 {
  template <FloatType kType>
  FASTLOADER_AVX512 static void affine(const uint8_t* in, size_t count, const Pattern& pattern,
                                       uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    const __m512 scale0 = _mm512_load_ps(pattern.scale);
    const __m512 scale1 = _mm512_load_ps(pattern.scale + 16);
    const __m512 scale2 = _mm512_load_ps(pattern.scale + 32);
    const __m512 bias0 = _mm512_load_ps(pattern.bias);
    const __m512 bias1 = _mm512_load_ps(pattern.bias + 16);
    const __m512 bias2 = _mm512_load_ps(pattern.bias + 32);
    size_t i = 0;
    for (; i + 2 * kPatternLength <= count; i += 2 * kPatternLength) {
      const uint8_t* from = in + i;
      uint8_t* to = out + i * kBytes;
      store_pair<kType>(to, _mm512_fmadd_ps(load_floats(from), scale0, bias0),
                        _mm512_fmadd_ps(load_floats(from + 16), scale1, bias1));
      store_pair<kType>(to + 32 * kBytes, _mm512_fmadd_ps(load_floats(from + 32), scale2, bias2),
                        _mm512_fmadd_ps(load_floats(from + 48), scale0, bias0));
      store_pair<kType>(to + 64 * kBytes, _mm512_fmadd_ps(load_floats(from + 64), scale1, bias1),
                        _mm512_fmadd_ps(load_floats(from + 80), scale2, bias2));
    }
    for (size_t k = 0; i < count; i += 16, k = (k + 16) % kPatternLength) {
      const __mmask16 mask = first_lanes(count - i);
      const __m512 x = to_floats(_mm_maskz_loadu_epi8(mask, in + i));
      store_some<kType>(
          out + i * kBytes, mask,
          _mm512_fmadd_ps(x, _mm512_load_ps(pattern.scale + k), _mm512_load_ps(pattern.bias + k)));
    }
  }

  template <FloatType kType, int kChannels>
  FASTLOADER_AVX512 static void split(const uint8_t* in, size_t pixels, const NormalizeSpec& spec,
                                      uint8_t* out) {
    constexpr size_t kBytes = bytes_per_element(kType);
    const size_t plane = pixels * kBytes;
    size_t p = 0;
    for (; p + 32 <= pixels; p += 32) {
      const __m512i low = load_pixels<kChannels>(in + p * kChannels, 16);
      const __m512i high = load_pixels<kChannels>(in + (p + 16) * kChannels, 16);
      split_pair<kType, kChannels, 0>(low, high, spec, out + p * kBytes, plane);
    }
    for (; p < pixels; p += 16) {
      const size_t count = std::min<size_t>(16, pixels - p);
      split_some<kType, kChannels, 0>(load_pixels<kChannels>(in + p * kChannels, count),
                                      first_lanes(count), spec, out + p * kBytes, plane);
    }
  }

  template <int kChannels>
  static void merge(const uint8_t* in, size_t plane, size_t pixels, uint8_t* out) {
    x86::merge<kChannels>(in, plane, pixels, out);
  }
};

}  // namespace

void normalize_avx512(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  normalize_runs<Avx512>(spec, in, out);
}

}  // namespace fastloader

#endif
