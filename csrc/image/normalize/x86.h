#pragma once

// Only for the x86 files behind the dispatch list: what AVX2 and AVX-512 share.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace fastloader::x86 {

struct alignas(16) ByteShuffle {
  uint8_t bytes[16];
};

/// Takes, from 4 pixels of `channels` bytes each, one channel's bytes to the low ends of 4 zeroed
/// 32-bit lanes: separating the channels and widening them is one instruction.
constexpr ByteShuffle make_split_shuffle(int channels, int channel) {
  ByteShuffle shuffle{};
  for (int i = 0; i < 16; ++i) {
    shuffle.bytes[i] = static_cast<uint8_t>(i % 4 == 0 ? i / 4 * channels + channel : 0x80);
  }
  return shuffle;
}

/// Takes 16 pixels of one of 3 channels to their places in the `part`-th 16 of the 48 bytes.
constexpr ByteShuffle make_merge_shuffle(int channel, int part) {
  ByteShuffle shuffle{};
  for (int i = 0; i < 16; ++i) {
    const int position = 16 * part + i;
    shuffle.bytes[i] = static_cast<uint8_t>(position % 3 == channel ? position / 3 : 0x80);
  }
  return shuffle;
}

template <int kChannels, int kChannel>
struct SplitShuffle {
  static constexpr ByteShuffle kValue = make_split_shuffle(kChannels, kChannel);
};

template <int kChannel, int kPart>
struct MergeShuffle {
  static constexpr ByteShuffle kValue = make_merge_shuffle(kChannel, kPart);
};

__attribute__((target("ssse3"))) inline __m128i load_shuffle(const ByteShuffle& shuffle) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(shuffle.bytes));
}

__attribute__((target("ssse3"))) inline __m128i load_bytes(const uint8_t* in) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
}

__attribute__((target("ssse3"))) inline void store_bytes(uint8_t* out, __m128i bytes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

template <int kPart>
__attribute__((target("ssse3"))) inline __m128i merge_part(__m128i a, __m128i b, __m128i c) {
  const __m128i from_a = _mm_shuffle_epi8(a, load_shuffle(MergeShuffle<0, kPart>::kValue));
  const __m128i from_b = _mm_shuffle_epi8(b, load_shuffle(MergeShuffle<1, kPart>::kValue));
  const __m128i from_c = _mm_shuffle_epi8(c, load_shuffle(MergeShuffle<2, kPart>::kValue));
  return _mm_or_si128(_mm_or_si128(from_a, from_b), from_c);
}

/// The merge() that normalize/runs.h asks for.
template <int kChannels>
__attribute__((target("ssse3"))) inline void merge(const uint8_t* in, size_t plane, size_t pixels,
                                                   uint8_t* out) {
  size_t p = 0;
  for (; p + 16 <= pixels; p += 16) {
    uint8_t* to = out + p * kChannels;
    const __m128i a = load_bytes(in + p);
    const __m128i b = load_bytes(in + plane + p);
    if constexpr (kChannels == 2) {
      store_bytes(to, _mm_unpacklo_epi8(a, b));
      store_bytes(to + 16, _mm_unpackhi_epi8(a, b));
    } else if constexpr (kChannels == 3) {
      const __m128i c = load_bytes(in + 2 * plane + p);
      store_bytes(to, merge_part<0>(a, b, c));
      store_bytes(to + 16, merge_part<1>(a, b, c));
      store_bytes(to + 32, merge_part<2>(a, b, c));
    } else {
      const __m128i c = load_bytes(in + 2 * plane + p);
      const __m128i d = load_bytes(in + 3 * plane + p);
      const __m128i low_ab = _mm_unpacklo_epi8(a, b);
      const __m128i high_ab = _mm_unpackhi_epi8(a, b);
      const __m128i low_cd = _mm_unpacklo_epi8(c, d);
      const __m128i high_cd = _mm_unpackhi_epi8(c, d);
      store_bytes(to, _mm_unpacklo_epi16(low_ab, low_cd));
      store_bytes(to + 16, _mm_unpackhi_epi16(low_ab, low_cd));
      store_bytes(to + 32, _mm_unpacklo_epi16(high_ab, high_cd));
      store_bytes(to + 48, _mm_unpackhi_epi16(high_ab, high_cd));
    }
  }
  for (; p < pixels; ++p) {
    for (size_t c = 0; c < kChannels; ++c) out[p * kChannels + c] = in[c * plane + p];
  }
}

}  // namespace fastloader::x86

#endif
