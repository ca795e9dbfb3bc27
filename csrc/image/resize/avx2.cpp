#include "image/resize/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define FASTLOADER_AVX2 __attribute__((target("avx2")))
#define FASTLOADER_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace fastloader {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kStoreBytes = 32;

FASTLOADER_AVX2_INLINE __m256i load(const uint32_t* words) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}

FASTLOADER_AVX2_INLINE __m256i load_bytes(const uint8_t* in) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
}

/// Sums of products with the two parts of the coefficients.
struct Sums {
  __m256i high;
  __m256i low;
};

FASTLOADER_AVX2_INLINE Sums no_sums() {
  return {_mm256_setzero_si256(), _mm256_set1_epi32(kResizeHalf)};
}

FASTLOADER_AVX2_INLINE void add_products(Sums& sums, __m256i samples, __m256i high, __m256i low) {
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(samples, high));
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(samples, low));
}

/// 8 values, not yet clipped.
FASTLOADER_AVX2_INLINE __m256i rounded(const Sums& sums) {
  const __m256i whole = _mm256_add_epi32(_mm256_slli_epi32(sums.high, kPairShift), sums.low);
  return _mm256_srai_epi32(whole, kResizeBits);
}

struct Tables {
  const uint32_t* shuffles;
  const uint32_t* words;
  const uint32_t* offsets;
};

/// The next 8 bytes of a row. kSteps and kPieces are 0 where they are not known beforehand.
template <size_t kSteps, size_t kPieces>
FASTLOADER_AVX2_INLINE __m256i next_vector(const HorizontalPlan& plan, const uint8_t* in,
                                           Tables& tables) {
  const size_t steps = kSteps != 0 ? kSteps : plan.steps();
  const size_t pieces = kPieces != 0 ? kPieces : plan.pieces();
  Sums sums = no_sums();
  for (size_t step = 0; step < steps; ++step) {
    __m256i samples = _mm256_setzero_si256();
    for (size_t piece = 0; piece < pieces; ++piece) {
      const __m256i windows =
          _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(in + tables.offsets[1]),
                              reinterpret_cast<const __m128i*>(in + tables.offsets[0]));
      const __m256i moved = _mm256_shuffle_epi8(windows, load(tables.shuffles));
      samples = kPieces == 1 ? moved : _mm256_or_si256(samples, moved);
      tables.offsets += 2;
      tables.shuffles += kLanes;
    }
    add_products(sums, samples, load(tables.words), load(tables.words + kLanes));
    tables.words += 2 * kLanes;
  }
  return rounded(sums);
}

template <size_t kSteps, size_t kPieces>
FASTLOADER_AVX2 void horizontal_row(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  // Packing works within 128 bits: puts the 4-byte groups back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  Tables tables{plan.shuffles(), plan.words(), plan.offsets()};
  const size_t bytes = (plan.out_row_bytes() + kStoreBytes - 1) / kStoreBytes * kStoreBytes;
  for (size_t x = 0; x < bytes; x += kStoreBytes) {
    const __m256i a = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m256i b = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m256i c = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m256i d = next_vector<kSteps, kPieces>(plan, in, tables);
    const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
}

/// In each 128 bits two taps of three channels, 16 bits wide; bytes from `first` on.
struct alignas(32) WideShuffle {
  uint8_t bytes[32];
};

constexpr WideShuffle make_wide_shuffle(int first) {
  WideShuffle shuffle{};
  for (int i = 0; i < 32; ++i) {
    const int tap = i / 16 * 2 + i / 2 % 2;
    const int channel = i % 16 / 4;
    const bool used = channel < 3 && i % 2 == 0;
    shuffle.bytes[i] = static_cast<uint8_t>(used ? first + 3 * tap + channel : 0x80);
  }
  return shuffle;
}

/// The block's coefficients are {high 0 1, high 2 3, low 0 1, low 2 3}; each is wanted thrice.
constexpr WideShuffle make_wide_words(int first) {
  WideShuffle shuffle{};
  for (int i = 0; i < 32; ++i) {
    shuffle.bytes[i] = static_cast<uint8_t>(4 * (first + i / 16) + i % 4);
  }
  return shuffle;
}

constexpr WideShuffle kWideSamples = make_wide_shuffle(0);
constexpr WideShuffle kLateSamples = make_wide_shuffle(4);
constexpr WideShuffle kWideHigh = make_wide_words(0);
constexpr WideShuffle kWideLow = make_wide_words(2);

FASTLOADER_AVX2_INLINE __m256i load(const WideShuffle& shuffle) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(shuffle.bytes));
}

FASTLOADER_AVX2_INLINE __m256i load_twice(const void* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

FASTLOADER_AVX2 void horizontal_wide(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out) {
  constexpr size_t kBlockBytes = 12;
  const size_t width = plan.axis().out();
  const size_t blocks = plan.steps();
  const __m256i high_words = load(kWideHigh);
  const __m256i low_words = load(kWideLow);
  const __m256i half = _mm256_setr_epi32(kResizeHalf, kResizeHalf, kResizeHalf, 0, 0, 0, 0, 0);
  const uint32_t* words = plan.words();
  for (size_t x = 0; x < width; ++x) {
    const size_t offset = plan.offsets()[x];
    const bool late = offset >= plan.late_offset();
    const __m256i shuffle = late ? load(kLateSamples) : load(kWideSamples);
    const uint8_t* from = in + offset - (late ? 4 : 0);
    Sums sums{_mm256_setzero_si256(), half};
    for (size_t block = 0; block < blocks; ++block, from += kBlockBytes, words += 4) {
      const __m256i samples = _mm256_shuffle_epi8(load_twice(from), shuffle);
      const __m256i both = load_twice(words);
      add_products(sums, samples, _mm256_shuffle_epi8(both, high_words),
                   _mm256_shuffle_epi8(both, low_words));
    }
    const __m256i whole = _mm256_add_epi32(_mm256_slli_epi32(sums.high, kPairShift), sums.low);
    const __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
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
    case 3:
      return horizontal_row<3, 1>(plan, in, out);
    default:
      return horizontal_row<0, 1>(plan, in, out);
  }
}

FASTLOADER_AVX2_INLINE __m256i vertical_block(const uint8_t* const* rows, const uint32_t* words,
                                              size_t steps, size_t x) {
  const __m256i zero = _mm256_setzero_si256();
  Sums a = no_sums();
  Sums b = no_sums();
  Sums c = no_sums();
  Sums d = no_sums();
  for (size_t step = 0; step < steps; ++step) {
    const __m256i first = load_bytes(rows[2 * step] + x);
    const __m256i second = load_bytes(rows[2 * step + 1] + x);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(words[2 * step]));
    const __m256i low = _mm256_set1_epi32(static_cast<int>(words[2 * step + 1]));
    const __m256i ab = _mm256_unpacklo_epi8(first, second);
    const __m256i cd = _mm256_unpackhi_epi8(first, second);
    add_products(a, _mm256_unpacklo_epi8(ab, zero), high, low);
    add_products(b, _mm256_unpackhi_epi8(ab, zero), high, low);
    add_products(c, _mm256_unpacklo_epi8(cd, zero), high, low);
    add_products(d, _mm256_unpackhi_epi8(cd, zero), high, low);
  }
  // Packing undoes what unpacking did to the order.
  return _mm256_packus_epi16(_mm256_packs_epi32(rounded(a), rounded(b)),
                             _mm256_packs_epi32(rounded(c), rounded(d)));
}

FASTLOADER_AVX2 void vertical(const uint8_t* const* rows, const uint32_t* words, size_t steps,
                              size_t bytes, uint8_t* out) {
  size_t x = 0;
  for (; x + kStoreBytes <= bytes; x += kStoreBytes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), vertical_block(rows, words, steps, x));
  }
  if (x == bytes) return;
  alignas(32) uint8_t rest[kStoreBytes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(rest), vertical_block(rows, words, steps, x));
  std::memcpy(out + x, rest, bytes - x);
}

}  // namespace

const ResizeKernels kResizeAvx2 = {TapPacking::kPairs, horizontal, vertical};

}  // namespace fastloader

#endif
