#include "image/jpeg/kernels/pixels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "image/jpeg/kernels/dct.h"
#include "image/jpeg/kernels/ycc.h"

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

constexpr size_t kSamples = 32;

FASTLOADER_AVX2_INLINE __m256i load(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

FASTLOADER_AVX2_INLINE void store(uint8_t* bytes, __m256i all) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), all);
}

// --- rows between rows --------------------------------------------------------------------------

/// 16 bits for each of 32 samples: of samples 0 to 7 and 16 to 23 in `low`, and of the others.
struct Sums {
  __m256i low;
  __m256i high;
};

/// first * kFirst + second * kSecond
template <int kFirst, int kSecond>
FASTLOADER_AVX2_INLINE Sums weighed(__m256i first, __m256i second) {
  const __m256i weights = _mm256_set1_epi16(kFirst | kSecond << 8);
  return {_mm256_maddubs_epi16(_mm256_unpacklo_epi8(first, second), weights),
          _mm256_maddubs_epi16(_mm256_unpackhi_epi8(first, second), weights)};
}

FASTLOADER_AVX2_INLINE Sums plus(const Sums& a, const Sums& b) {
  return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
}

template <int kShift>
FASTLOADER_AVX2_INLINE Sums divided(const Sums& sums, __m256i bias) {
  return {_mm256_srli_epi16(_mm256_add_epi16(sums.low, bias), kShift),
          _mm256_srli_epi16(_mm256_add_epi16(sums.high, bias), kShift)};
}

/// 64 samples: one of `even`, one of `odd`, and so on.
FASTLOADER_AVX2_INLINE void store_in_turn(uint8_t* out, const Sums& even, const Sums& odd) {
  const __m256i low = _mm256_or_si256(even.low, _mm256_slli_epi16(odd.low, 8));
  const __m256i high = _mm256_or_si256(even.high, _mm256_slli_epi16(odd.high, 8));
  store(out, _mm256_permute2x128_si256(low, high, 0x20));
  store(out + 32, _mm256_permute2x128_si256(low, high, 0x31));
}

FASTLOADER_AVX2 void widen(const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, in += kSamples) {
    const __m256i here = load(in);
    const Sums even = weighed<3, 1>(here, load(in - 1));
    const Sums odd = weighed<3, 1>(here, load(in + 1));
    store_in_turn(out + 2 * i, divided<2>(even, _mm256_set1_epi16(1)),
                  divided<2>(odd, _mm256_set1_epi16(2)));
  }
}

FASTLOADER_AVX2 void widen_between(const uint8_t* near, const uint8_t* far, size_t count,
                                   uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, near += kSamples, far += kSamples) {
    const __m256i near_here = load(near);
    const __m256i far_here = load(far);
    const Sums even =
        plus(weighed<9, 3>(near_here, load(near - 1)), weighed<3, 1>(far_here, load(far - 1)));
    const Sums odd =
        plus(weighed<9, 3>(near_here, load(near + 1)), weighed<3, 1>(far_here, load(far + 1)));
    store_in_turn(out + 2 * i, divided<4>(even, _mm256_set1_epi16(8)),
                  divided<4>(odd, _mm256_set1_epi16(7)));
  }
}

FASTLOADER_AVX2 void between(const uint8_t* near, const uint8_t* far, size_t count, unsigned bias,
                             uint8_t* out) {
  const __m256i biases = _mm256_set1_epi16(static_cast<int16_t>(bias));
  for (size_t i = 0; i < count; i += kSamples) {
    const Sums sums = divided<2>(weighed<3, 1>(load(near + i), load(far + i)), biases);
    store(out + i, _mm256_packus_epi16(sums.low, sums.high));
  }
}

// --- colour -------------------------------------------------------------------------------------

/// 16 bits for each of 32 pixels.
struct Wide {
  __m256i even;
  __m256i odd;
};

FASTLOADER_AVX2_INLINE Wide widened(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(bytes, 8)};
}

FASTLOADER_AVX2_INLINE Wide centred(__m256i bytes) {
  const __m256i middle = _mm256_set1_epi16(128);
  const Wide wide = widened(bytes);
  return {_mm256_sub_epi16(wide.even, middle), _mm256_sub_epi16(wide.odd, middle)};
}

struct Colours {
  __m256i red;
  __m256i green;
  __m256i blue;
};

FASTLOADER_AVX2_INLINE __m256i green_above_y(__m256i cb, __m256i cr) {
  const __m256i factors = _mm256_set1_epi32(static_cast<uint16_t>(jpeg_ycc::kGreenOfCb) |
                                            jpeg_ycc::kGreenOfCr * (1 << 16));
  const __m256i half = _mm256_set1_epi32(1 << (jpeg_ycc::kShortFractionBits - 1));
  const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
  const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);
  return _mm256_packs_epi32(
      _mm256_srai_epi32(_mm256_add_epi32(low, half), jpeg_ycc::kShortFractionBits),
      _mm256_srai_epi32(_mm256_add_epi32(high, half), jpeg_ycc::kShortFractionBits));
}

/// Of every other pixel, not yet clipped.
FASTLOADER_AVX2_INLINE Colours wide_colours(__m256i y, __m256i cb, __m256i cr) {
  const __m256i red = _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(jpeg_ycc::kRedOfCr));
  const __m256i blue = _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(jpeg_ycc::kBlueOfCb));
  return {_mm256_add_epi16(_mm256_add_epi16(y, cr), red),
          _mm256_add_epi16(y, green_above_y(cb, cr)),
          _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)), blue)};
}

/// Where packing puts a pixel of 16: the even ones come first.
constexpr size_t packed_place(size_t pixel) { return pixel % 2 * 8 + pixel / 2; }

struct alignas(32) Shuffle {
  uint8_t bytes[32];
};

/// In each half, takes 16 pixels of a channel to their places in the kPart-th 16 of their 48 bytes
/// of RGB.
template <size_t kChannel, size_t kPart, bool kPacked>
struct PartShuffle {
  static constexpr Shuffle make() {
    Shuffle shuffle{};
    for (size_t i = 0; i < 32; ++i) {
      const size_t byte = 16 * kPart + i % 16;
      const size_t place = kPacked ? packed_place(byte / 3) : byte / 3;
      shuffle.bytes[i] = static_cast<uint8_t>(byte % 3 == kChannel ? place : 0x80);
    }
    return shuffle;
  }
  static constexpr Shuffle kValue = make();
};

FASTLOADER_AVX2_INLINE __m256i shuffled(__m256i bytes, const Shuffle& shuffle) {
  return _mm256_shuffle_epi8(bytes, load(shuffle.bytes));
}

template <size_t kPart, bool kPacked>
FASTLOADER_AVX2_INLINE void store_part(uint8_t* rgb, const Colours& colours) {
  const __m256i red = shuffled(colours.red, PartShuffle<0, kPart, kPacked>::kValue);
  const __m256i green = shuffled(colours.green, PartShuffle<1, kPart, kPacked>::kValue);
  const __m256i blue = shuffled(colours.blue, PartShuffle<2, kPart, kPacked>::kValue);
  const __m256i part = _mm256_or_si256(_mm256_or_si256(red, green), blue);
  auto* to = reinterpret_cast<__m128i*>(rgb) + kPart;
  _mm_storeu_si128(to, _mm256_castsi256_si128(part));
  _mm_storeu_si128(to + 3, _mm256_extracti128_si256(part, 1));
}

template <bool kPacked>
FASTLOADER_AVX2_INLINE void store_rgb(uint8_t* rgb, const Colours& colours) {
  store_part<0, kPacked>(rgb, colours);
  store_part<1, kPacked>(rgb, colours);
  store_part<2, kPacked>(rgb, colours);
}

FASTLOADER_AVX2 void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr,
                                size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const Wide wide_y = widened(load(y + i));
    const Wide wide_cb = centred(load(cb + i));
    const Wide wide_cr = centred(load(cr + i));
    const Colours even = wide_colours(wide_y.even, wide_cb.even, wide_cr.even);
    const Colours odd = wide_colours(wide_y.odd, wide_cb.odd, wide_cr.odd);
    store_rgb<true>(
        rgb, {_mm256_packus_epi16(even.red, odd.red), _mm256_packus_epi16(even.green, odd.green),
              _mm256_packus_epi16(even.blue, odd.blue)});
  }
}

FASTLOADER_AVX2 void grey_to_rgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const __m256i grey = load(y + i);
    store_rgb<false>(rgb, {grey, grey, grey});
  }
}

}  // namespace

const JpegPixelKernels kJpegPixelsAvx2 = {inverse_dct_avx2, widen,      widen_between,
                                          between,          ycc_to_rgb, grey_to_rgb};

}  // namespace fastloader

#endif
