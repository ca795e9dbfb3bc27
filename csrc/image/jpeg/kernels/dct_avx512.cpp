#include "image/jpeg/kernels/dct.h"

#if defined(__x86_64__)

#include <cstddef>

#include "image/avx512.h"

#define FASTLOADER_LANES_INLINE FASTLOADER_AVX512_INLINE
#define FASTLOADER_LANES_INTRINSIC(name) _mm512_##name

namespace fastloader {
namespace {

using Lanes = __m512i;

FASTLOADER_LANES_INLINE Lanes in_each_lane(__m128i lane) { return _mm512_broadcast_i32x4(lane); }

template <size_t kLane>
FASTLOADER_LANES_INLINE __m128i lane(Lanes lanes) {
  return _mm512_extracti32x4_epi32(lanes, static_cast<int>(kLane));
}

FASTLOADER_LANES_INLINE bool share_bits(Lanes a, Lanes b) {
  return _mm512_test_epi16_mask(a, b) != 0;
}

}  // namespace
}  // namespace fastloader

#include "image/jpeg/kernels/lanes.h"

namespace fastloader {
namespace {

// --- from the file's order to pairs -------------------------------------------------------------

// One instruction takes 16 bits to any place of a register, so that the first pass finds its pairs
// made, and has nothing to interleave.

/// For each 16 bits of two registers: where they come from.
struct alignas(64) Places {
  uint16_t words[kJpegBlock];

  static constexpr size_t row(size_t word) {
    constexpr size_t kRows[8][2] = {{0, 0}, {4, 4}, {2, 6}, {2, 6}, {7, 1}, {7, 1}, {3, 5}, {3, 5}};
    return kRows[word / 8][word % 2];
  }
  static constexpr size_t column(size_t word) {
    const size_t lane = word / 8;
    return kColumns[lane < 2 ? word % 8 : lane % 2 * 4 + word % 8 / 2];
  }
};

constexpr Places make_file_places() {
  Places places{};
  for (size_t i = 0; i < kJpegBlock; ++i) {
    places.words[i] = static_cast<uint16_t>(in_file(Places::row(i), Places::column(i)));
  }
  return places;
}

constexpr Places make_table_places() {
  Places places{};
  for (size_t i = 0; i < kJpegBlock; ++i) {
    places.words[i] = static_cast<uint16_t>(Places::row(i) * kJpegEdge + Places::column(i));
  }
  return places;
}

/// The same for two blocks with few coefficients, the 16 first of each.
struct alignas(64) LowPlaces {
  uint16_t words[32];

  static constexpr size_t row(size_t word) { return word / 8 % 2 + word % 2 * 2; }
  static constexpr size_t column(size_t word) { return kLowColumns[word % 8 / 2]; }
};

constexpr LowPlaces make_low_file_places() {
  LowPlaces places{};
  for (size_t i = 0; i < 32; ++i) {
    const size_t place = in_file(LowPlaces::row(i), LowPlaces::column(i));
    // Those that are zero come from one that is.
    places.words[i] = static_cast<uint16_t>(i / 16 * 16 + std::min<size_t>(place, 15));
  }
  return places;
}

constexpr LowPlaces make_low_table_places() {
  LowPlaces places{};
  for (size_t i = 0; i < 32; ++i) {
    places.words[i] = static_cast<uint16_t>(LowPlaces::row(i) * kJpegEdge + LowPlaces::column(i));
  }
  return places;
}

constexpr Places kFilePlaces = make_file_places();
constexpr Places kTablePlaces = make_table_places();
constexpr LowPlaces kLowFilePlaces = make_low_file_places();
constexpr LowPlaces kLowTablePlaces = make_low_table_places();

/// The factors in the order in which one block's numbers lie.
struct Quantization {
  const uint16_t* in_order;
  Lanes first;
  Lanes second;
  Lanes low;
};

FASTLOADER_LANES_INLINE Lanes taken(Lanes first, Lanes second, const uint16_t* places) {
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(places), second);
}

FASTLOADER_LANES_INLINE Lanes taken(Lanes from, const LowPlaces& places) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(places.words), from);
}

FASTLOADER_LANES_INLINE Quantization arranged(const uint16_t* quantization) {
  const Lanes first = _mm512_load_si512(quantization);
  const Lanes second = _mm512_load_si512(quantization + 32);
  return {quantization, taken(first, second, kTablePlaces.words),
          taken(first, second, kTablePlaces.words + 32), taken(first, kLowTablePlaces)};
}

/// A block's numbers, times their factors.
FASTLOADER_LANES_INLINE void load(const JpegBlock& block, const Quantization& quantization,
                                  Lanes& first, Lanes& second) {
  const Lanes in_first = _mm512_load_si512(block.coefficients);
  const Lanes in_second = _mm512_load_si512(block.coefficients + 32);
  first = _mm512_mullo_epi16(taken(in_first, in_second, kFilePlaces.words), quantization.first);
  second =
      _mm512_mullo_epi16(taken(in_first, in_second, kFilePlaces.words + 32), quantization.second);
}

FASTLOADER_LANES_INLINE void clear(const JpegBlock& block) {
  _mm512_store_si512(block.coefficients, _mm512_setzero_si512());
  _mm512_store_si512(block.coefficients + 32, _mm512_setzero_si512());
}

FASTLOADER_LANES_INLINE void clear_low(const JpegBlock& block) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(block.coefficients), _mm256_setzero_si256());
}

/// The lanes of four blocks become four registers, each with one lane of every block.
FASTLOADER_LANES_INLINE void exchange_lanes(const Lanes (&blocks)[4], Lanes (&lanes)[4]) {
  const Lanes upper_01 = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0x44);
  const Lanes upper_23 = _mm512_shuffle_i64x2(blocks[2], blocks[3], 0x44);
  const Lanes lower_01 = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0xee);
  const Lanes lower_23 = _mm512_shuffle_i64x2(blocks[2], blocks[3], 0xee);
  lanes[0] = _mm512_shuffle_i64x2(upper_01, upper_23, 0x88);
  lanes[1] = _mm512_shuffle_i64x2(upper_01, upper_23, 0xdd);
  lanes[2] = _mm512_shuffle_i64x2(lower_01, lower_23, 0x88);
  lanes[3] = _mm512_shuffle_i64x2(lower_01, lower_23, 0xdd);
}

FASTLOADER_AVX512 void transform_full(Group group, const Quantization& quantization,
                                      size_t stride) {
  Lanes blocks[kGroup];
  Lanes more_blocks[kGroup];
  load(*group[0], quantization, blocks[0], more_blocks[0]);
  load(*group[1], quantization, blocks[1], more_blocks[1]);
  load(*group[2], quantization, blocks[2], more_blocks[2]);
  load(*group[3], quantization, blocks[3], more_blocks[3]);
  Lanes lanes[4];
  Lanes more_lanes[4];
  exchange_lanes(blocks, lanes);
  exchange_lanes(more_blocks, more_lanes);
  if (beyond_limit(lanes[0])) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear(*group[0]);
  clear(*group[1]);
  clear(*group[2]);
  clear(*group[3]);

  const Fours upper = with_fraction(add_epi16(lanes[0], lanes[1]));
  const Fours lower = with_fraction(sub_epi16(lanes[0], lanes[1]));
  transform_and_store({upper,
                       lower,
                       {lanes[2], lanes[3]},
                       {more_lanes[0], more_lanes[1]},
                       {more_lanes[2], more_lanes[3]}},
                      group, stride);
}

/// The 16 first numbers of two blocks, in two lanes each.
FASTLOADER_LANES_INLINE Lanes two_low_blocks(Group group, const Quantization& quantization) {
  const auto* first = reinterpret_cast<const __m256i*>(group[0]->coefficients);
  const auto* second = reinterpret_cast<const __m256i*>(group[1]->coefficients);
  const Lanes both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(first)),
                                        _mm256_load_si256(second), 1);
  return _mm512_mullo_epi16(taken(both, kLowFilePlaces), quantization.low);
}

FASTLOADER_AVX512 void transform_low_blocks(Group group, const Quantization& quantization,
                                            size_t stride) {
  const Lanes first = two_low_blocks(group, quantization);
  const Lanes second = two_low_blocks(group + 2, quantization);
  const Lanes pairs_02 = _mm512_shuffle_i64x2(first, second, 0x88);
  const Lanes pairs_13 = _mm512_shuffle_i64x2(first, second, 0xdd);
  if (beyond_limit(pairs_02)) {
    return transform_one_by_one<kGroup>(group, quantization.in_order, stride);
  }
  clear_low(*group[0]);
  clear_low(*group[1]);
  clear_low(*group[2]);
  clear_low(*group[3]);
  transform_and_store_low(pairs_02, pairs_13, group, stride);
}

}  // namespace

FASTLOADER_AVX512 void inverse_dct_avx512(const JpegBlock* blocks, size_t count,
                                          const uint16_t* quantization, size_t stride) {
  const Quantization own = arranged(quantization);
  transform_in_groups<kGroup>(
      blocks, count, [&](Group group) { transform_low_blocks(group, own, stride); },
      [&](Group group) { transform_full(group, own, stride); });
}

}  // namespace fastloader

#endif
