#include "base/xxh3.h"

#include <cstring>

#include "base/little_endian.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fastloader {
namespace {

// The algorithm's constants and steps, by the names of its reference implementation.
constexpr uint64_t kPrime32_1 = 0x9E3779B1;
constexpr uint64_t kPrime32_2 = 0x85EBCA77;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5;
constexpr uint64_t kPrimeMx1 = 0x165667919E3779F9;
constexpr uint64_t kPrimeMx2 = 0x9FB21C651E98DF25;

constexpr size_t kSecretBytes = 192;
constexpr uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

constexpr size_t kLanes = 8;
constexpr size_t kStripe = kLanes * sizeof(uint64_t);
constexpr size_t kSecretStep = 8;  // bytes from one stripe's key to the next one's
constexpr size_t kStripesOfBlock = (kSecretBytes - kStripe) / kSecretStep;
// How far ahead the bytes are asked for, since a processor by itself stops at each end of a page.
// A file is seldom in a core's own caches, and hashing one takes most of its time to arrive.
constexpr size_t kPrefetched = 2048;
constexpr size_t kShortest = 16;  // of inputs that are read in 16 bytes at a time
constexpr size_t kShort = 128;
constexpr size_t kMiddle = 240;

uint64_t read32(const uint8_t* at) { return read_little_endian<uint32_t>(at); }

uint64_t read64(const uint8_t* at) { return read_little_endian<uint64_t>(at); }

uint64_t key(size_t at) { return read64(kSecret + at); }

uint64_t rotate(uint64_t x, unsigned bits) { return x << bits | x >> (64 - bits); }

/// The two halves of the product of 128 bits.
uint64_t multiply_fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ hash >> 37) * kPrimeMx1;
  return hash ^ hash >> 32;
}

uint64_t avalanche_xxh64(uint64_t hash) {
  hash = (hash ^ hash >> 33) * kPrime64_2;
  hash = (hash ^ hash >> 29) * kPrime64_3;
  return hash ^ hash >> 32;
}

uint64_t mix16(const uint8_t* at, size_t secret) {
  return multiply_fold(read64(at) ^ key(secret), read64(at + 8) ^ key(secret + 8));
}

uint64_t hash_to_16(const uint8_t* data, size_t size) {
  if (size > 8) {
    const uint64_t low = read64(data) ^ (key(24) ^ key(32));
    const uint64_t high = read64(data + size - 8) ^ (key(40) ^ key(48));
    return avalanche(size + __builtin_bswap64(low) + high + multiply_fold(low, high));
  }
  if (size >= 4) {
    const uint64_t both = read32(data + size - 4) + (read32(data) << 32);
    uint64_t hash = both ^ (key(8) ^ key(16));
    hash ^= rotate(hash, 49) ^ rotate(hash, 24);
    hash *= kPrimeMx2;
    hash ^= (hash >> 35) + size;
    hash *= kPrimeMx2;
    return hash ^ hash >> 28;
  }
  if (size > 0) {
    const uint64_t both = uint64_t{data[0]} << 16 | uint64_t{data[size / 2]} << 24 |
                          uint64_t{data[size - 1]} | size << 8;
    return avalanche_xxh64(both ^ (read32(kSecret) ^ read32(kSecret + 4)));
  }
  return avalanche_xxh64(key(56) ^ key(64));
}

uint64_t hash_to_128(const uint8_t* data, size_t size) {
  uint64_t hash = size * kPrime64_1;
  // From both ends to the middle.
  for (size_t i = 0; i <= (size - 1) / 32; ++i) {
    hash += mix16(data + 16 * i, 32 * i);
    hash += mix16(data + size - 16 * (i + 1), 32 * i + 16);
  }
  return avalanche(hash);
}

uint64_t hash_to_240(const uint8_t* data, size_t size) {
  constexpr size_t kFirst = 8;  // pieces of 16 bytes
  uint64_t hash = size * kPrime64_1;
  for (size_t i = 0; i < kFirst; ++i) hash += mix16(data + 16 * i, 16 * i);
  hash = avalanche(hash);
  for (size_t i = kFirst; i < size / 16; ++i) {
    hash += mix16(data + 16 * i, 16 * (i - kFirst) + 3);
  }
  hash += mix16(data + size - 16, 136 - 17);
  return avalanche(hash);
}

/// The sums of all lanes while stripes are taken in. They stay in registers: every x86-64 and every
/// aarch64 has what multiplies two pairs of 32 bits at a time.
class Lanes {
 public:
#if defined(__x86_64__)
  explicit Lanes(const uint64_t* from) {
    for (size_t i = 0; i < kVectors; ++i) lanes_[i] = load(from + 2 * i);
  }

  void store(uint64_t* to) const {
    for (size_t i = 0; i < kVectors; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), lanes_[i]);
    }
  }

  void accumulate(const uint8_t* stripe, const uint8_t* secret) {
    for (size_t i = 0; i < kVectors; ++i) {
      const __m128i input = load(stripe + 16 * i);
      const __m128i mixed = _mm_xor_si128(input, load(secret + 16 * i));
      const __m128i high = _mm_shuffle_epi32(mixed, _MM_SHUFFLE(0, 3, 0, 1));
      const __m128i swapped = _mm_shuffle_epi32(input, _MM_SHUFFLE(1, 0, 3, 2));
      const __m128i product = _mm_mul_epu32(mixed, high);
      lanes_[i] = _mm_add_epi64(_mm_add_epi64(lanes_[i], swapped), product);
    }
  }

 private:
  static constexpr size_t kVectors = kLanes / 2;
  static __m128i load(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  __m128i lanes_[kVectors];
#else
  explicit Lanes(const uint64_t* from) { std::memcpy(lanes_, from, sizeof lanes_); }
  void store(uint64_t* to) const { std::memcpy(to, lanes_, sizeof lanes_); }

  void accumulate(const uint8_t* stripe, const uint8_t* secret) {
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t input = read64(stripe + 8 * i);
      const uint64_t mixed = input ^ read64(secret + 8 * i);
      lanes_[i ^ 1] += input;
      lanes_[i] += (mixed & 0xffffffff) * (mixed >> 32);
    }
  }

 private:
  uint64_t lanes_[kLanes];
#endif
};

/// Takes in so many stripes, no more than a block has.
void accumulate(uint64_t* lanes, const uint8_t* data, size_t stripes) {
  Lanes sums(lanes);
  for (size_t i = 0; i < stripes; ++i) {
    __builtin_prefetch(data + i * kStripe + kPrefetched);
    sums.accumulate(data + i * kStripe, kSecret + i * kSecretStep);
  }
  sums.store(lanes);
}

void scramble(uint64_t* lanes) {
  for (size_t i = 0; i < kLanes; ++i) {
    const uint64_t lane = lanes[i] ^ lanes[i] >> 47 ^ key(kSecretBytes - kStripe + 8 * i);
    lanes[i] = lane * kPrime32_1;
  }
}

uint64_t hash_long(const uint8_t* data, size_t size) {
  uint64_t lanes[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                            kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  size_t left = (size - 1) / kStripe;
  const uint8_t* at = data;
  for (; left >= kStripesOfBlock; left -= kStripesOfBlock, at += kStripesOfBlock * kStripe) {
    accumulate(lanes, at, kStripesOfBlock);
    scramble(lanes);
  }
  accumulate(lanes, at, left);
  Lanes sums(lanes);
  sums.accumulate(data + size - kStripe, kSecret + kSecretBytes - kStripe - 7);
  sums.store(lanes);
  uint64_t hash = size * kPrime64_1;
  for (size_t i = 0; i < kLanes; i += 2) {
    hash += multiply_fold(lanes[i] ^ key(11 + 8 * i), lanes[i + 1] ^ key(11 + 8 * i + 8));
  }
  return avalanche(hash);
}

}  // namespace

uint64_t xxh3(const uint8_t* data, size_t size) {
  if (size <= kShortest) return hash_to_16(data, size);
  if (size <= kShort) return hash_to_128(data, size);
  if (size <= kMiddle) return hash_to_240(data, size);
  return hash_long(data, size);
}

}  // namespace fastloader
