#include "image/jpeg/kernels/pixels.h"

#if defined(__x86_64__)

#include "image/avx512.h"
#include "image/jpeg/kernels/dct.h"
#include "image/jpeg/kernels/ycc.h"

#define FASTLOADER_VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define FASTLOADER_VBMI_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi"), always_inline)) inline

namespace fastloader {
namespace {

constexpr size_t kSamples = 64;

FASTLOADER_AVX512_INLINE __m512i load(const uint8_t* bytes) { return _mm512_loadu_si512(bytes); }

// --- rows between rows --------------------------------------------------------------------------

/// 16 bits for each of 64 samples: of the first 8 of each 16 in `low`, and of the others.
struct Sums {
  __m512i low;
  __m512i high;
};

/// first * kFirst + second * kSecond
template <int kFirst, int kSecond>
FASTLOADER_AVX512_INLINE Sums weighed(__m512i first, __m512i second) {
  const __m512i weights = _mm512_set1_epi16(kFirst | kSecond << 8);
  return {_mm512_maddubs_epi16(_mm512_unpacklo_epi8(first, second), weights),
          _mm512_maddubs_epi16(_mm512_unpackhi_epi8(first, second), weights)};
}

FASTLOADER_AVX512_INLINE Sums plus(const Sums& a, const Sums& b) {
  return {_mm512_add_epi16(a.low, b.low), _mm512_add_epi16(a.high, b.high)};
}

template <int kShift>
FASTLOADER_AVX512_INLINE Sums divided(const Sums& sums, __m512i bias) {
  return {_mm512_srli_epi16(_mm512_add_epi16(sums.low, bias), kShift),
          _mm512_srli_epi16(_mm512_add_epi16(sums.high, bias), kShift)};
}

/// One of `even`, one of `odd`, and so on, for as many pairs as there are left. A register too many
/// would go beyond kJpegSlack.
FASTLOADER_AVX512_INLINE void store_in_turn(uint8_t* out, size_t left, const Sums& even,
                                            const Sums& odd) {
  const __m512i low = _mm512_or_si512(even.low, _mm512_slli_epi16(odd.low, 8));
  const __m512i high = _mm512_or_si512(even.high, _mm512_slli_epi16(odd.high, 8));
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, first, high));
  if (left <= kSamples / 2) return;
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(out + kSamples, _mm512_permutex2var_epi64(low, second, high));
}

FASTLOADER_AVX512 void widen(const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, in += kSamples) {
    const __m512i here = load(in);
    const Sums even = weighed<3, 1>(here, load(in - 1));
    const Sums odd = weighed<3, 1>(here, load(in + 1));
    store_in_turn(out + 2 * i, count - i, divided<2>(even, _mm512_set1_epi16(1)),
                  divided<2>(odd, _mm512_set1_epi16(2)));
  }
}

FASTLOADER_AVX512 void widen_between(const uint8_t* near, const uint8_t* far, size_t count,
                                     uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, near += kSamples, far += kSamples) {
    const __m512i near_here = load(near);
    const __m512i far_here = load(far);
    const Sums even =
        plus(weighed<9, 3>(near_here, load(near - 1)), weighed<3, 1>(far_here, load(far - 1)));
    const Sums odd =
        plus(weighed<9, 3>(near_here, load(near + 1)), weighed<3, 1>(far_here, load(far + 1)));
    store_in_turn(out + 2 * i, count - i, divided<4>(even, _mm512_set1_epi16(8)),
                  divided<4>(odd, _mm512_set1_epi16(7)));
  }
}

FASTLOADER_AVX512 void between(const uint8_t* near, const uint8_t* far, size_t count, unsigned bias,
                               uint8_t* out) {
  const __m512i biases = _mm512_set1_epi16(static_cast<int16_t>(bias));
  for (size_t i = 0; i < count; i += kSamples) {
    const Sums sums = divided<2>(weighed<3, 1>(load(near + i), load(far + i)), biases);
    _mm512_storeu_si512(out + i, _mm512_packus_epi16(sums.low, sums.high));
  }
}

// --- colour -------------------------------------------------------------------------------------

/// 16 bits for each of 64 pixels.
struct Wide {
  __m512i even;
  __m512i odd;
};

FASTLOADER_AVX512_INLINE Wide widened(__m512i bytes) {
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(bytes, 8)};
}

FASTLOADER_AVX512_INLINE Wide centred(__m512i bytes) {
  const __m512i middle = _mm512_set1_epi16(128);
  const Wide wide = widened(bytes);
  return {_mm512_sub_epi16(wide.even, middle), _mm512_sub_epi16(wide.odd, middle)};
}

struct Colours {
  __m512i red;
  __m512i green;
  __m512i blue;
};

FASTLOADER_AVX512_INLINE __m512i green_above_y(__m512i cb, __m512i cr) {
  const __m512i factors = _mm512_set1_epi32(static_cast<uint16_t>(jpeg_ycc::kGreenOfCb) |
                                            jpeg_ycc::kGreenOfCr * (1 << 16));
  const __m512i half = _mm512_set1_epi32(1 << (jpeg_ycc::kShortFractionBits - 1));
  const __m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(cb, cr), factors);
  const __m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(cb, cr), factors);
  return _mm512_packs_epi32(
      _mm512_srai_epi32(_mm512_add_epi32(low, half), jpeg_ycc::kShortFractionBits),
      _mm512_srai_epi32(_mm512_add_epi32(high, half), jpeg_ycc::kShortFractionBits));
}

/// Of every other pixel, not yet clipped.
FASTLOADER_AVX512_INLINE Colours wide_colours(__m512i y, __m512i cb, __m512i cr) {
  const __m512i red = _mm512_mulhrs_epi16(cr, _mm512_set1_epi16(jpeg_ycc::kRedOfCr));
  const __m512i blue = _mm512_mulhrs_epi16(cb, _mm512_set1_epi16(jpeg_ycc::kBlueOfCb));
  return {_mm512_add_epi16(_mm512_add_epi16(y, cr), red),
          _mm512_add_epi16(y, green_above_y(cb, cr)),
          _mm512_add_epi16(_mm512_add_epi16(y, _mm512_add_epi16(cb, cb)), blue)};
}

/// In each lane the 8 even ones of 16 pixels come first, then the odd ones.
FASTLOADER_AVX512_INLINE Colours colours_of(const uint8_t* y, const uint8_t* cb,
                                            const uint8_t* cr) {
  const Wide wide_y = widened(load(y));
  const Wide wide_cb = centred(load(cb));
  const Wide wide_cr = centred(load(cr));
  const Colours even = wide_colours(wide_y.even, wide_cb.even, wide_cr.even);
  const Colours odd = wide_colours(wide_y.odd, wide_cb.odd, wide_cr.odd);
  return {_mm512_packus_epi16(even.red, odd.red), _mm512_packus_epi16(even.green, odd.green),
          _mm512_packus_epi16(even.blue, odd.blue)};
}

constexpr size_t packed_place(size_t pixel) {
  return pixel / 16 * 16 + pixel % 2 * 8 + pixel % 16 / 2;
}

// --- RGB within 128 bits ------------------------------------------------------------------------

struct alignas(16) Shuffle {
  uint8_t bytes[16];
};

/// Takes 16 pixels of a channel to where they belong in one of the three 16 bytes of RGB: no two of
/// them to the same place.
template <size_t kChannel, bool kPacked>
struct ChannelShuffle {
  static constexpr Shuffle make() {
    Shuffle shuffle{};
    for (size_t pixel = 0; pixel < 16; ++pixel) {
      shuffle.bytes[(3 * pixel + kChannel) % 16] =
          static_cast<uint8_t>(kPacked ? packed_place(pixel) : pixel);
    }
    return shuffle;
  }
  static constexpr Shuffle kValue = make();
};

/// Which of a part's bytes are a channel's, in all four lanes.
constexpr uint64_t part_mask(size_t channel, size_t part) {
  uint64_t mask = 0;
  for (size_t i = 0; i < 16; ++i) {
    if ((16 * part + i) % 3 == channel) mask |= uint64_t{0x0001000100010001} << i;
  }
  return mask;
}

template <size_t kChannel, bool kPacked>
FASTLOADER_AVX512_INLINE __m512i placed(__m512i channel) {
  const auto* bytes = ChannelShuffle<kChannel, kPacked>::kValue.bytes;
  const __m128i lane = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_shuffle_epi8(channel, _mm512_broadcast_i32x4(lane));
}

template <size_t kPart>
FASTLOADER_AVX512_INLINE void store_part(uint8_t* rgb, const Colours& placed) {
  const __m512i red_green = _mm512_mask_blend_epi8(part_mask(1, kPart), placed.red, placed.green);
  const __m512i part = _mm512_mask_blend_epi8(part_mask(2, kPart), red_green, placed.blue);
  auto* to = reinterpret_cast<__m128i*>(rgb) + kPart;
  _mm_storeu_si128(to, _mm512_castsi512_si128(part));
  _mm_storeu_si128(to + 3, _mm512_extracti32x4_epi32(part, 1));
  _mm_storeu_si128(to + 6, _mm512_extracti32x4_epi32(part, 2));
  _mm_storeu_si128(to + 9, _mm512_extracti32x4_epi32(part, 3));
}

template <bool kPacked>
FASTLOADER_AVX512_INLINE void store_rgb(uint8_t* rgb, const Colours& colours) {
  const Colours each = {placed<0, kPacked>(colours.red), placed<1, kPacked>(colours.green),
                        placed<2, kPacked>(colours.blue)};
  store_part<0>(rgb, each);
  store_part<1>(rgb, each);
  store_part<2>(rgb, each);
}

FASTLOADER_AVX512 void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr,
                                  size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    store_rgb<true>(rgb, colours_of(y + i, cb + i, cr + i));
  }
}

FASTLOADER_AVX512 void grey_to_rgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const __m512i grey = load(y + i);
    store_rgb<false>(rgb, {grey, grey, grey});
  }
}

// --- RGB within a register ----------------------------------------------------------------------

/// For the kPart-th 64 of 192 bytes: which byte of its channel each is.
template <size_t kPart, bool kPacked>
struct alignas(64) BytePlaces {
  uint8_t bytes[64];

  static constexpr BytePlaces make() {
    BytePlaces places{};
    for (size_t i = 0; i < 64; ++i) {
      const size_t pixel = (64 * kPart + i) / 3;
      places.bytes[i] = static_cast<uint8_t>(kPacked ? packed_place(pixel) : pixel);
    }
    return places;
  }
};

template <size_t kPart, bool kPacked>
constexpr BytePlaces<kPart, kPacked> kBytePlaces = BytePlaces<kPart, kPacked>::make();

constexpr uint64_t byte_mask(size_t channel, size_t part) {
  uint64_t mask = 0;
  for (size_t i = 0; i < 64; ++i) {
    if ((64 * part + i) % 3 == channel) mask |= uint64_t{1} << i;
  }
  return mask;
}

template <size_t kPart>
FASTLOADER_VBMI_INLINE void store_whole(uint8_t* rgb, const Colours& colours) {
  const __m512i places = _mm512_load_si512(kBytePlaces<kPart, true>.bytes);
  __m512i part = _mm512_permutexvar_epi8(places, colours.red);
  part = _mm512_mask_permutexvar_epi8(part, byte_mask(1, kPart), places, colours.green);
  part = _mm512_mask_permutexvar_epi8(part, byte_mask(2, kPart), places, colours.blue);
  _mm512_storeu_si512(rgb + 64 * kPart, part);
}

FASTLOADER_VBMI void ycc_to_rgb_vbmi(const uint8_t* y, const uint8_t* cb, const uint8_t* cr,
                                     size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const Colours colours = colours_of(y + i, cb + i, cr + i);
    store_whole<0>(rgb, colours);
    store_whole<1>(rgb, colours);
    store_whole<2>(rgb, colours);
  }
}

template <size_t kPart>
FASTLOADER_VBMI_INLINE void store_grey(uint8_t* rgb, __m512i grey) {
  const __m512i places = _mm512_load_si512(kBytePlaces<kPart, false>.bytes);
  _mm512_storeu_si512(rgb + 64 * kPart, _mm512_permutexvar_epi8(places, grey));
}

FASTLOADER_VBMI void grey_to_rgb_vbmi(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const __m512i grey = load(y + i);
    store_grey<0>(rgb, grey);
    store_grey<1>(rgb, grey);
    store_grey<2>(rgb, grey);
  }
}

}  // namespace

const JpegPixelKernels kJpegPixelsAvx512 = {inverse_dct_avx512, widen,      widen_between, between,
                                            ycc_to_rgb,         grey_to_rgb};
const JpegPixelKernels kJpegPixelsAvx512Vbmi = {
    inverse_dct_avx512, widen, widen_between, between, ycc_to_rgb_vbmi, grey_to_rgb_vbmi};

}  // namespace fastloader

#endif
