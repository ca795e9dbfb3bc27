#include "image/resize/kernels.h"

#if defined(__x86_64__)

#include <cstring>

#include "image/avx512.h"

#define FASTLOADER_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define FASTLOADER_VNNI_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"), always_inline)) inline

namespace fastloader {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kStoreBytes = 64;

FASTLOADER_VNNI_INLINE __m512i load(const uint32_t* words) { return _mm512_load_si512(words); }

FASTLOADER_VNNI_INLINE __m512i broadcast(uint32_t word) {
  return _mm512_set1_epi32(static_cast<int>(word));
}

/// Sums of products with the three digits of the coefficients.
struct Sums {
  __m512i low;
  __m512i middle;
  __m512i high;
};

FASTLOADER_VNNI_INLINE Sums no_sums() {
  return {_mm512_set1_epi32(kResizeHalf), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

FASTLOADER_VNNI_INLINE void add_products(Sums& sums, __m512i samples, __m512i low, __m512i middle,
                                         __m512i high) {
  sums.low = _mm512_dpbusd_epi32(sums.low, samples, low);
  sums.middle = _mm512_dpbusd_epi32(sums.middle, samples, middle);
  sums.high = _mm512_dpbusd_epi32(sums.high, samples, high);
}

/// 16 values, not yet clipped.
FASTLOADER_VNNI_INLINE __m512i rounded(const Sums& sums) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sums.high, 8), sums.middle);
  const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), sums.low);
  return _mm512_srai_epi32(whole, kResizeBits);
}

FASTLOADER_VNNI_INLINE __m512i packed(__m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

struct Tables {
  const uint32_t* shuffles;
  const uint32_t* words;
  const uint32_t* offsets;
  const uint64_t* masks;
};

/// The next 16 bytes of a row. kSteps and kPieces are 0 where they are not known beforehand.
template <size_t kSteps, size_t kPieces>
FASTLOADER_VNNI_INLINE __m512i next_vector(const HorizontalPlan& plan, const uint8_t* in,
                                           Tables& tables) {
  const size_t steps = kSteps != 0 ? kSteps : plan.steps();
  const size_t pieces = kPieces != 0 ? kPieces : plan.pieces();
  Sums sums = no_sums();
  for (size_t step = 0; step < steps; ++step) {
    __m512i samples = _mm512_setzero_si512();
    for (size_t piece = 0; piece < pieces; ++piece) {
      const __m512i window = _mm512_loadu_si512(in + *tables.offsets++);
      const __m512i shuffle = load(tables.shuffles);
      if constexpr (kPieces == 1) {
        samples = _mm512_permutexvar_epi8(shuffle, window);
      } else {
        samples = _mm512_mask_permutexvar_epi8(samples, *tables.masks++, shuffle, window);
      }
      tables.shuffles += kLanes;
    }
    const uint32_t* words = tables.words;
    add_products(sums, samples, load(words), load(words + kLanes), load(words + 2 * kLanes));
    tables.words += 3 * kLanes;
  }
  return rounded(sums);
}

template <size_t kSteps, size_t kPieces>
FASTLOADER_VNNI void horizontal_row(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  // Packing works within 128 bits: puts the 4-byte groups back in order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  Tables tables{plan.shuffles(), plan.words(), plan.offsets(), plan.masks()};
  const size_t bytes = plan.out_row_bytes();
  for (size_t x = 0; x < bytes; x += kStoreBytes) {
    const __m512i a = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m512i b = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m512i c = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m512i d = next_vector<kSteps, kPieces>(plan, in, tables);
    _mm512_storeu_si512(out + x, _mm512_permutexvar_epi32(order, packed(a, b, c, d)));
  }
}

/// In each 128 bits four taps of three channels (and something in the place of a fourth).
struct alignas(64) WideShuffle {
  uint8_t bytes[64];
};

constexpr WideShuffle make_wide_shuffle(int first) {
  WideShuffle shuffle{};
  for (int i = 0; i < 64; ++i) {
    const int tap = i / 16 * 4 + i % 4;
    const int channel = i % 16 / 4 % 3;
    shuffle.bytes[i] = static_cast<uint8_t>(first + 3 * tap + channel);
  }
  return shuffle;
}

constexpr WideShuffle kWideSamples = make_wide_shuffle(0);
constexpr WideShuffle kLateSamples = make_wide_shuffle(16);

/// Four words, each in all lanes of 128 bits.
FASTLOADER_VNNI_INLINE __m512i spread(const uint32_t* words) {
  const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
  return _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(four));
}

FASTLOADER_VNNI void horizontal_wide(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  constexpr size_t kBlockBytes = 48;
  const size_t width = plan.axis().out();
  const size_t blocks = plan.steps();
  const __m512i half = _mm512_maskz_set1_epi32(0xf, kResizeHalf);
  const uint32_t* words = plan.words();
  for (size_t x = 0; x < width; ++x) {
    const size_t offset = plan.offsets()[x];
    const bool late = offset >= plan.late_offset();
    const __m512i shuffle = _mm512_load_si512(late ? kLateSamples.bytes : kWideSamples.bytes);
    const uint8_t* from = in + offset - (late ? 16 : 0);
    Sums sums{half, _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t block = 0; block < blocks; ++block, from += kBlockBytes, words += 12) {
      const __m512i samples = _mm512_permutexvar_epi8(shuffle, _mm512_loadu_si512(from));
      add_products(sums, samples, spread(words), spread(words + 4), spread(words + 8));
    }
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sums.high, 8), sums.middle);
    const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), sums.low);
    const __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256(whole), _mm512_extracti64x4_epi64(whole, 1));
    const __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    const __m128i value = _mm_srai_epi32(sum, kResizeBits);
    const __m128i packed = _mm_packus_epi16(_mm_packs_epi32(value, value), value);
    const int pixel = _mm_cvtsi128_si32(packed);
    std::memcpy(out + 3 * x, &pixel, x + 1 < width ? 4 : 3);  // the 4th byte is the next pixel's
  }
}

void horizontal(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  if (plan.wide()) return horizontal_wide(plan, in, out);
  if (plan.pieces() != 1) return horizontal_row<0, 0>(plan, in, out);
  switch (plan.steps()) {
    case 1:
      return horizontal_row<1, 1>(plan, in, out);
    case 2:
      return horizontal_row<2, 1>(plan, in, out);
    default:
      return horizontal_row<0, 1>(plan, in, out);
  }
}

FASTLOADER_VNNI_INLINE __m512i vertical_block(const uint8_t* const* rows, const uint32_t* words,
                                              size_t steps, size_t x) {
  Sums a = no_sums();
  Sums b = no_sums();
  Sums c = no_sums();
  Sums d = no_sums();
  for (size_t step = 0; step < steps; ++step) {
    const uint8_t* const* from = rows + 4 * step;
    const __m512i first = _mm512_loadu_si512(from[0] + x);
    const __m512i second = _mm512_loadu_si512(from[1] + x);
    const __m512i third = _mm512_loadu_si512(from[2] + x);
    const __m512i fourth = _mm512_loadu_si512(from[3] + x);
    const __m512i low = broadcast(words[3 * step]);
    const __m512i middle = broadcast(words[3 * step + 1]);
    const __m512i high = broadcast(words[3 * step + 2]);
    const __m512i ab_upper = _mm512_unpacklo_epi8(first, second);
    const __m512i cd_upper = _mm512_unpackhi_epi8(first, second);
    const __m512i ab_lower = _mm512_unpacklo_epi8(third, fourth);
    const __m512i cd_lower = _mm512_unpackhi_epi8(third, fourth);
    add_products(a, _mm512_unpacklo_epi16(ab_upper, ab_lower), low, middle, high);
    add_products(b, _mm512_unpackhi_epi16(ab_upper, ab_lower), low, middle, high);
    add_products(c, _mm512_unpacklo_epi16(cd_upper, cd_lower), low, middle, high);
    add_products(d, _mm512_unpackhi_epi16(cd_upper, cd_lower), low, middle, high);
  }
  // Packing undoes what unpacking did to the order.
  return packed(rounded(a), rounded(b), rounded(c), rounded(d));
}

FASTLOADER_VNNI void vertical(const uint8_t* const* rows, const uint32_t* words, size_t steps,
                              size_t bytes, uint8_t* out) {
  size_t x = 0;
  for (; x + kStoreBytes <= bytes; x += kStoreBytes) {
    _mm512_storeu_si512(out + x, vertical_block(rows, words, steps, x));
  }
  if (x == bytes) return;
  const __mmask64 rest = (uint64_t{1} << (bytes - x)) - 1;
  _mm512_mask_storeu_epi8(out + x, rest, vertical_block(rows, words, steps, x));
}

}  // namespace

const ResizeKernels kResizeAvx512Vnni = {TapPacking::kQuads, horizontal, vertical};

}  // namespace fastloader

#endif
