#include "jpeg_mutate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "jpeg_odd_files.h"

namespace fastloader::fuzz {
namespace {

using testing::JpegSpec;
using testing::OddTrait;
using testing::Random;

uint32_t length_of(const Bytes& bytes) { return static_cast<uint32_t>(bytes.size()); }

auto at(Bytes& bytes, uint32_t offset) { return bytes.begin() + static_cast<long>(offset); }

/// Where the segment of one of `markers` begins, or the end.
uint32_t find_segment(const Bytes& bytes, std::initializer_list<int> markers, Random& random) {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i + 1 < length_of(bytes); ++i) {
    if (bytes[i] != 0xff) continue;
    if (std::find(markers.begin(), markers.end(), bytes[i + 1]) != markers.end()) {
      found.push_back(i);
    }
  }
  return found.empty() ? length_of(bytes)
                       : found[random.below(static_cast<uint32_t>(found.size()))];
}

void flip_bits(Bytes& bytes, const Bytes&, Random& random) {
  for (uint32_t n = random.between(1, 6); n > 0 && !bytes.empty(); --n) {
    bytes[random.below(length_of(bytes))] ^= static_cast<uint8_t>(1u << random.below(8));
  }
}

void set_bytes(Bytes& bytes, const Bytes&, Random& random) {
  constexpr uint8_t kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff};
  for (uint32_t n = random.between(1, 3); n > 0 && !bytes.empty(); --n) {
    const uint8_t any = static_cast<uint8_t>(random.next());
    bytes[random.below(length_of(bytes))] = random.chance(50) ? any : kEdges[random.below(6)];
  }
}

void cut_end(Bytes& bytes, const Bytes&, Random& random) {
  if (bytes.empty()) return;
  const uint32_t most = random.chance(50) ? std::min(length_of(bytes), 16u) : length_of(bytes);
  bytes.resize(bytes.size() - random.between(1, most));
}

void remove_middle(Bytes& bytes, const Bytes&, Random& random) {
  if (bytes.size() < 4) return;
  const uint32_t first = random.below(length_of(bytes) - 1);
  const uint32_t count = random.between(1, std::min(length_of(bytes) - first, 64u));
  bytes.erase(at(bytes, first), at(bytes, first + count));
}

void repeat_middle(Bytes& bytes, const Bytes&, Random& random) {
  if (bytes.size() < 4) return;
  const uint32_t first = random.below(length_of(bytes) - 1);
  const uint32_t count = random.between(1, std::min(length_of(bytes) - first, 200u));
  const Bytes copy(at(bytes, first), at(bytes, first + count));
  bytes.insert(at(bytes, random.below(length_of(bytes))), copy.begin(), copy.end());
}

void insert_marker(Bytes& bytes, const Bytes&, Random& random) {
  const uint8_t code = static_cast<uint8_t>(random.between(random.chance(70) ? 0xc0 : 0x01, 0xfe));
  const uint8_t marker[2] = {0xff, code};
  bytes.insert(at(bytes, random.below(length_of(bytes) + 1)), marker, marker + 2);
}

void change_marker(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t i = find_segment(bytes, {0xc0, 0xc1, 0xc2, 0xc4, 0xda, 0xdb, 0xdd, 0xd9}, random);
  if (i + 1 < length_of(bytes)) bytes[i + 1] = static_cast<uint8_t>(random.between(0xc0, 0xe1));
}

void move_restarts(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t i = find_segment(bytes, {0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7}, random);
  if (i + 1 < length_of(bytes)) bytes[i + 1] = static_cast<uint8_t>(random.between(0xd0, 0xd7));
}

void change_frame(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t i = find_segment(bytes, {0xc0, 0xc1, 0xc2, 0xc9, 0xca}, random);
  if (i + 12 >= length_of(bytes)) return;
  if (random.chance(5)) {
    // Large: what a few bytes of a scan have to be decoded into.
    bytes[i + 5] = bytes[i + 7] = static_cast<uint8_t>(random.between(4, 7));
    return;
  }
  const bool size = random.chance(50);
  if (size) {
    bytes[i + 5] = bytes[i + 7] = 0;
    bytes[i + 6] = static_cast<uint8_t>(random.next());
    bytes[i + 8] = static_cast<uint8_t>(random.next());
    return;
  }
  const uint32_t component = random.below(std::max<uint32_t>(1, bytes[i + 9]));
  const uint32_t sampling = i + 11 + 3 * component;
  if (sampling >= length_of(bytes)) return;
  bytes[sampling] = static_cast<uint8_t>(random.between(1, 4) << 4 | random.between(1, 4));
}

void change_scan(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t i = find_segment(bytes, {0xda}, random);
  if (i + 14 >= length_of(bytes)) return;
  bytes[i + random.between(2, 14)] = static_cast<uint8_t>(random.below(64));
}

/// The same scan again and again, which costs a decoder the whole picture each time.
void repeat_scan(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t begin = find_segment(bytes, {0xda}, random);
  uint32_t end = begin + 2;
  while (end + 1 < length_of(bytes) &&
         !(bytes[end] == 0xff && bytes[end + 1] != 0 && (bytes[end + 1] & 0xf8) != 0xd0)) {
    ++end;
  }
  if (end >= length_of(bytes)) return;
  const Bytes scan(at(bytes, begin), at(bytes, end));
  const uint32_t times = random.chance(50) ? random.between(1, 8) : random.between(50, 4000);
  Bytes again;
  for (uint32_t n = times; n > 0 && again.size() < (1 << 16); --n) {
    again.insert(again.end(), scan.begin(), scan.end());
  }
  bytes.insert(at(bytes, end), again.begin(), again.end());
}

void change_length(Bytes& bytes, const Bytes&, Random& random) {
  const uint32_t i = find_segment(bytes, {0xc0, 0xc2, 0xc4, 0xda, 0xdb, 0xdd, 0xe0, 0xee}, random);
  if (i + 3 >= length_of(bytes)) return;
  bytes[i + 2] = random.chance(80) ? 0 : 0xff;
  bytes[i + 3] = static_cast<uint8_t>(random.next());
}

/// A segment in the header that Pillow reads and libjpeg passes over, begun as it should be.
void insert_segment(Bytes& bytes, const Bytes&, Random& random) {
  using std::string_literals::operator""s;
  const std::pair<uint8_t, std::string> kinds[] = {
      {0xe0, "JFIF\0\1\2\1\0\x48\0\x48\0\0"s},
      {0xee, "Adobe\0\x64\0\0\0\0\0"s},
      {0xe2, "ICC_PROFILE\0\1\1"s},
      {0xed, "Photoshop 3.0\0008BIM\3\xed\0\0\0\0\0\2ab8BIM\4\4"s},
      {0xe1, "Exif\0\0II*\0\x08\0\0\0\1\0\x1a\1\5\0\1\0\0\0\x1a\0\0\0"s},
      {0xe1, "Exif\0\0MM\0*\0\0\0\x08\0\1\1\x1a\0\2\0\0\0\1\0\0\0\x1a"s},
  };
  const auto& [marker, beginning] = kinds[random.below(6)];
  Bytes body(beginning.begin(), beginning.end());
  if (random.chance(50)) body.resize(random.below(length_of(body) + 1));
  if (random.chance(50) && !body.empty()) {
    body[random.below(length_of(body))] = static_cast<uint8_t>(random.next());
  }
  for (uint32_t n = random.chance(50) ? random.below(20) : 0; n > 0; --n) {
    body.push_back(static_cast<uint8_t>(random.next()));
  }
  body.insert(body.begin(), {0xff, marker, 0, static_cast<uint8_t>(body.size() + 2)});
  const uint32_t place = find_segment(bytes, {0xc0, 0xc2, 0xc4, 0xda, 0xdb}, random);
  bytes.insert(at(bytes, place), body.begin(), body.end());
}

void splice(Bytes& bytes, const Bytes& other, Random& random) {
  if (bytes.empty() || other.empty()) return;
  bytes.resize(random.below(length_of(bytes)) + 1);
  bytes.insert(bytes.end(), other.begin() + random.below(length_of(other)), other.end());
}

void append(Bytes& bytes, const Bytes& other, Random& random) {
  if (random.chance(50)) {
    bytes.insert(bytes.end(), other.begin(), other.end());
  } else {
    for (uint32_t n = random.between(1, 40); n > 0; --n) {
      bytes.push_back(static_cast<uint8_t>(random.next()));
    }
  }
}

constexpr size_t kLargest = 1 << 16;
constexpr uint64_t kOddSeeds = 200;

SeedKind kind_of(bool restarts, bool progressive) {
  if (restarts) return SeedKind::kRestarts;
  return progressive ? SeedKind::kProgressive : SeedKind::kPlain;
}

}  // namespace

Seed make_odd_seed(uint64_t number) {
  testing::OddJpeg odd = testing::make_odd_jpeg(number);
  return {std::move(odd.bytes),
          kind_of(odd.traits.has(OddTrait::kRestarts), odd.traits.has(OddTrait::kProgressive))};
}

std::vector<Seed> make_seeds() {
  std::vector<Seed> seeds;
  Random random(2024);
  const JpegSampling samplings[] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {3, 1}, {2, 4}};
  const J_COLOR_SPACE colors[] = {JCS_GRAYSCALE, JCS_YCbCr, JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};
  for (const J_COLOR_SPACE color : colors) {
    for (const JpegSampling& sampling : samplings) {
      for (int make = 0; make < 5; ++make) {
        JpegSpec spec;
        spec.stored = color;
        spec.width = random.between(1, 60);
        spec.height = random.between(1, 60);
        spec.quality = static_cast<int>(random.between(20, 95));
        spec.sampling[0] = sampling;
        if (color == JCS_YCCK) spec.sampling[3] = sampling;
        spec.progressive = make == 1;
        spec.separate_scans = make == 2;
        spec.restart_blocks = make == 3 ? random.between(1, 4) : 0;
        spec.arithmetic = make == 4 && random.chance(30);
        spec.incomplete = make == 4 && !spec.arithmetic;
        spec.optimize = random.chance(20);
        spec.seed = random.next();
        Bytes jpeg = testing::make_jpeg(spec);
        const SeedKind kind = kind_of(spec.restart_blocks > 0, spec.progressive || spec.incomplete);
        if (!jpeg.empty()) seeds.push_back({std::move(jpeg), kind});
      }
    }
  }
  for (uint64_t number = 0; number < kOddSeeds; ++number) seeds.push_back(make_odd_seed(number));
  return seeds;
}

void mutate(Bytes& bytes, const Bytes& other, Random& random) {
  using Mutation = void (*)(Bytes& bytes, const Bytes& other, Random& random);
  constexpr Mutation kMutations[] = {
      flip_bits,     set_bytes,     cut_end,       remove_middle, repeat_middle,
      insert_marker, change_marker, move_restarts, change_frame,  change_scan,
      change_length, splice,        append,        repeat_scan,   insert_segment,
  };
  kMutations[random.below(sizeof kMutations / sizeof kMutations[0])](bytes, other, random);
  if (bytes.size() > kLargest) bytes.resize(kLargest);
}

void damage_scans(Bytes& bytes, Random& random) {
  constexpr uint8_t kScan[] = {0xff, 0xda};
  constexpr uint32_t kHeader = 14;
  const auto scan = std::search(bytes.begin(), bytes.end(), kScan, kScan + 2);
  const uint32_t first = static_cast<uint32_t>(scan - bytes.begin()) + kHeader;
  if (first >= length_of(bytes)) return;
  uint8_t& byte = bytes[random.between(first, length_of(bytes) - 1)];
  byte = static_cast<uint8_t>(random.chance(70) ? byte ^ (1u << random.below(8)) : random.next());
}

}  // namespace fastloader::fuzz
