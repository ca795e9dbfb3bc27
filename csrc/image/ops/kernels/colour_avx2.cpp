#include "image/ops/kernels/colour.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

// Pixels go in eights, four in each half of a register: 12 bytes of it. The shuffles of AVX2 stay
// within a half, so nothing has to cross from one to the other.

constexpr size_t kPixels = 8;
constexpr size_t kHalfBytes = 12;
constexpr size_t kBytes = 2 * kHalfBytes;
/// What load() reads and store() writes: 4 bytes behind the pixels, which stay as they are.
constexpr size_t kTouched = kHalfBytes + 16;

FASTLOADER_AVX2_INLINE __m256i load(const uint8_t* rgb) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rgb + kHalfBytes),
                             reinterpret_cast<const __m128i*>(rgb));
}

/// Expects the pixels that were loaded from there.
FASTLOADER_AVX2_INLINE void store(__m256i made, __m256i loaded, uint8_t* rgb) {
  const __m256i all = _mm256_blend_epi32(made, loaded, 0x88);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb), _mm256_castsi256_si128(all));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + kHalfBytes), _mm256_extracti128_si256(all, 1));
}

FASTLOADER_AVX2_INLINE __m256i in_each_half(__m128i half) {
  return _mm256_broadcastsi128_si256(half);
}

/// The shuffle that takes each pixel's bytes `low` and `high` to 32 bits as two numbers of 16; -1
/// for a 0.
FASTLOADER_AVX2_INLINE __m256i pair_shuffle(int low, int high) {
  const int first = (low & 0xff) | 0xff00 | (high & 0xff) << 16 | static_cast<int>(0xff000000u);
  const int step = 3 | (high < 0 ? 0 : 3 << 16);
  return in_each_half(_mm_setr_epi32(first, first + step, first + 2 * step, first + 3 * step));
}

/// The shuffle that takes four bytes from `first` on to 32 bits each.
FASTLOADER_AVX2_INLINE __m256i widen_shuffle(int first) {
  const int byte = first | static_cast<int>(0xffffff00u);
  return in_each_half(_mm_setr_epi32(byte, byte + 1, byte + 2, byte + 3));
}

/// Each pixel's grey, in 32 bits. The weight of green has 17 bits with its sign, so green comes
/// twice, once with each half of it.
FASTLOADER_AVX2_INLINE __m256i greys(__m256i pixels) {
  const __m256i red_green = _mm256_shuffle_epi8(pixels, pair_shuffle(0, 1));
  const __m256i blue_green = _mm256_shuffle_epi8(pixels, pair_shuffle(2, 1));
  const __m256i sum =
      _mm256_add_epi32(_mm256_madd_epi16(red_green, _mm256_set1_epi32(19595 | 19235 << 16)),
                       _mm256_madd_epi16(blue_green, _mm256_set1_epi32(7471 | 19235 << 16)));
  return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(0x8000)), 16);
}

/// FloatLanes::to() as far as 32 bits. Negative numbers are clipped where these are packed.
FASTLOADER_AVX2_INLINE __m256i integers(__m256 numbers) {
  return _mm256_cvttps_epi32(_mm256_min_ps(numbers, _mm256_set1_ps(255.0f)));
}

FASTLOADER_AVX2_INLINE __m256 blend(__m256 first, __m256 second, __m256 factor) {
  return _mm256_add_ps(first, _mm256_mul_ps(factor, _mm256_sub_ps(second, first)));
}

// --- what is done to eight pixels ---------------------------------------------------------------

struct Saturate {
  float factor;

  FASTLOADER_AVX2_INLINE __m256i operator()(__m256i pixels) const {
    const __m256 grey = _mm256_cvtepi32_ps(greys(pixels));
    // A pixel's grey meets its three channels: 0001, 1122, 2333.
    const __m256i a = part(pixels, 0, _mm256_permute_ps(grey, 0x40));
    const __m256i b = part(pixels, 4, _mm256_permute_ps(grey, 0xa5));
    const __m256i c = part(pixels, 8, _mm256_permute_ps(grey, 0xfe));
    return _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, c));
  }

 private:
  FASTLOADER_AVX2_INLINE __m256i part(__m256i pixels, int first, __m256 grey) const {
    const __m256 colour = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, widen_shuffle(first)));
    return integers(blend(grey, colour, _mm256_set1_ps(factor)));
  }
};

struct Grayscale {
  FASTLOADER_AVX2_INLINE __m256i operator()(__m256i pixels) const {
    const __m128i thrice = _mm_setr_epi8(0, 0, 0, 4, 4, 4, 8, 8, 8, 12, 12, 12, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(greys(pixels), in_each_half(thrice));
  }
};

/// The arithmetic of the scalar kernel, whose comments say why it is this. No number is above 255.
struct Hue {
  uint8_t shift;

  FASTLOADER_AVX2_INLINE __m256i operator()(__m256i pixels) const {
    return to_rgb(to_hsv(_mm256_shuffle_epi8(pixels, pair_shuffle(0, -1)),
                         _mm256_shuffle_epi8(pixels, pair_shuffle(1, -1)),
                         _mm256_shuffle_epi8(pixels, pair_shuffle(2, -1))));
  }

 private:
  struct Hsv {
    __m256i hue;
    __m256i saturation;
    __m256i value;
  };

  FASTLOADER_AVX2_INLINE Hsv to_hsv(__m256i red, __m256i green, __m256i blue) const {
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i two = _mm256_set1_epi32(2);
    const __m256i high = _mm256_max_epi16(red, _mm256_max_epi16(green, blue));
    const __m256i low = _mm256_min_epi16(red, _mm256_min_epi16(green, blue));
    const __m256i sum = _mm256_add_epi32(red, _mm256_add_epi32(green, blue));
    const __m256i middle = _mm256_sub_epi32(sum, _mm256_add_epi32(high, low));
    const __m256i spread = _mm256_sub_epi32(high, low);
    const __m256i red_is_high = _mm256_cmpeq_epi32(red, high);
    const __m256i green_is_high = _mm256_cmpeq_epi32(green, high);
    const __m256i next =
        _mm256_blendv_epi8(_mm256_blendv_epi8(red, blue, green_is_high), green, red_is_high);
    const __m256i falls = _mm256_andnot_si256(_mm256_cmpeq_epi32(next, low), _mm256_set1_epi32(-1));
    // -1, 1 or 3 sixths if the hue rises from there; 2 more if it falls towards it.
    const __m256i rising = _mm256_andnot_si256(
        red_is_high, _mm256_blendv_epi8(_mm256_set1_epi32(4), two, green_is_high));
    const __m256i base =
        _mm256_add_epi32(_mm256_sub_epi32(rising, one), _mm256_and_si256(falls, two));
    const __m256i sign = _mm256_or_si256(falls, one);

    const __m256 x = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(high, middle)),
                                   _mm256_cvtepi32_ps(_mm256_max_epi16(spread, one)));
    const __m256 sixths =
        _mm256_add_ps(_mm256_cvtepi32_ps(base), _mm256_mul_ps(_mm256_cvtepi32_ps(sign), x));
    const __m256 turn = _mm256_div_ps(sixths, _mm256_set1_ps(6.0f));
    const __m256 negative = _mm256_cmp_ps(turn, _mm256_setzero_ps(), _CMP_LT_OQ);
    const __m256 raised = _mm256_add_ps(turn, _mm256_and_ps(negative, _mm256_set1_ps(1.0f)));
    const __m256 most = _mm256_set1_ps(255.0f);
    const __m256 part =
        _mm256_div_ps(_mm256_cvtepi32_ps(spread), _mm256_cvtepi32_ps(_mm256_max_epi16(high, one)));
    const __m256i hue = _mm256_add_epi32(_mm256_cvttps_epi32(_mm256_mul_ps(raised, most)),
                                         _mm256_set1_epi32(shift));
    return {_mm256_and_si256(hue, _mm256_set1_epi32(255)),
            _mm256_cvttps_epi32(_mm256_mul_ps(part, most)), high};
  }

  FASTLOADER_AVX2_INLINE static __m256i to_rgb(const Hsv& hsv) {
    constexpr int kThird = 85;
    const __m256i third = _mm256_set1_epi32(kThird);
    const __m256i sector =
        _mm256_srli_epi32(_mm256_mullo_epi16(hsv.hue, _mm256_set1_epi32(193)), 13);
    const __m256i into =
        _mm256_sub_epi32(_mm256_add_epi32(hsv.hue, hsv.hue), _mm256_mullo_epi16(sector, third));
    const __m256i odd =
        _mm256_cmpeq_epi32(_mm256_and_si256(sector, _mm256_set1_epi32(1)), _mm256_set1_epi32(1));
    const __m256i fall = _mm256_blendv_epi8(_mm256_sub_epi32(third, into), into, odd);

    const __m256i sum =
        _mm256_add_epi32(_mm256_mullo_epi16(hsv.value, hsv.saturation), _mm256_set1_epi32(128));
    const __m256i less = _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_srli_epi32(sum, 8)), 8);
    const __m256i low = _mm256_sub_epi32(hsv.value, less);

    const __m256 product =
        _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(hsv.saturation), _mm256_cvtepi32_ps(fall)),
                      _mm256_cvtepi32_ps(hsv.value));
    const __m256 rounded = _mm256_add_ps(
        _mm256_mul_ps(product, _mm256_set1_ps(1.0f / (255.0f * kThird))), _mm256_set1_ps(0.5f));
    const __m256i middle = _mm256_sub_epi32(hsv.value, _mm256_cvttps_epi32(rounded));

    // Of the bytes (value, middle, low), the sector says which are red, green and blue.
    const __m256i bytes = _mm256_or_si256(
        hsv.value, _mm256_or_si256(_mm256_slli_epi32(middle, 8), _mm256_slli_epi32(low, 16)));
    const __m256i order =
        _mm256_setr_epi32(0x020100, 0x020001, 0x010002, 0x000102, 0x000201, 0x010200, 0x020100, 0);
    const __m256i places = in_each_half(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const __m256i chosen = _mm256_shuffle_epi8(
        bytes, _mm256_add_epi32(_mm256_permutevar8x32_epi32(order, sector), places));
    const __m128i three = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(chosen, in_each_half(three));
  }
};

// --- loops --------------------------------------------------------------------------------------

/// Pixels become what change(eight of them) says.
template <class Change>
FASTLOADER_AVX2_INLINE void change_pixels(const Change& change, uint8_t* rgb, size_t pixels) {
  size_t left = pixels * 3;
  if (left >= kTouched) {
    // The next ones are loaded first: a load from what was just written in part would wait for it.
    __m256i loaded = load(rgb);
    for (; left >= kBytes + kTouched; left -= kBytes, rgb += kBytes) {
      const __m256i next = load(rgb + kBytes);
      store(change(loaded), loaded, rgb);
      loaded = next;
    }
    store(change(loaded), loaded, rgb);
    left -= kBytes;
    rgb += kBytes;
  }
  while (left != 0) {
    uint8_t rest[kTouched] = {};
    const size_t bytes = std::min(left, kBytes);
    std::memcpy(rest, rgb, bytes);
    const __m256i loaded = load(rest);
    store(change(loaded), loaded, rest);
    std::memcpy(rgb, rest, bytes);
    left -= bytes;
    rgb += bytes;
  }
}

FASTLOADER_AVX2 void saturate(float factor, uint8_t* rgb, size_t pixels) {
  change_pixels(Saturate{factor}, rgb, pixels);
}

FASTLOADER_AVX2 void grayscale(uint8_t* rgb, size_t pixels) {
  change_pixels(Grayscale{}, rgb, pixels);
}

FASTLOADER_AVX2 void hue(uint8_t shift, uint8_t* rgb, size_t pixels) {
  change_pixels(Hue{shift}, rgb, pixels);
}

FASTLOADER_AVX2 uint32_t sum_of_greys(const uint8_t* rgb, size_t pixels) {
  __m256i sums = _mm256_setzero_si256();
  size_t left = pixels * 3;
  for (; left >= kTouched; left -= kBytes, rgb += kBytes) {
    sums = _mm256_add_epi32(sums, greys(load(rgb)));
  }
  uint32_t each[kPixels];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(each), sums);
  uint32_t total = kColourScalar.sum_of_greys(rgb, left / 3);
  for (const uint32_t sum : each) total += sum;
  return total;
}

/// 8 bytes.
FASTLOADER_AVX2_INLINE __m256i blend_some(__m256 others, __m256 factors, const uint8_t* bytes) {
  const __m128i some = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return integers(blend(others, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(some)), factors));
}

FASTLOADER_AVX2 void blend_bytes(uint8_t other, float factor, uint8_t* bytes, size_t count) {
  constexpr size_t kBlock = 32;
  const __m256 others = _mm256_set1_ps(static_cast<float>(other));
  const __m256 factors = _mm256_set1_ps(factor);
  // Packing works within 128 bits: puts the 4-byte groups back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (; count >= kBlock; count -= kBlock, bytes += kBlock) {
    const __m256i ab = _mm256_packs_epi32(blend_some(others, factors, bytes),
                                          blend_some(others, factors, bytes + 8));
    const __m256i cd = _mm256_packs_epi32(blend_some(others, factors, bytes + 16),
                                          blend_some(others, factors, bytes + 24));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes),
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order));
  }
  kColourScalar.blend(other, factor, bytes, count);
}

}  // namespace

const ColourKernels kColourAvx2 = {blend_bytes, sum_of_greys, saturate, grayscale, hue};

}  // namespace fastloader

#endif
