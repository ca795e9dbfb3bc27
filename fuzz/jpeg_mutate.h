#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_samples.h"

namespace fastloader::fuzz {

using Bytes = std::vector<uint8_t>;

/// What the inputs are counted by.
enum class SeedKind : uint8_t { kPlain, kProgressive, kRestarts, kCount };

constexpr const char* kSeedKindNames[] = {"plain", "progressive", "with restarts"};

struct Seed {
  Bytes bytes;
  SeedKind kind;
};

/// One small JPEG of every make, clean and odd ones among them; the same on every run. None is
/// stored.
std::vector<Seed> make_seeds();

/// A clean and odd one of that number.
Seed make_odd_seed(uint64_t number);

/// Changes `bytes` in one of the ways listed in README.md; `other` is what to splice with.
void mutate(Bytes& bytes, const Bytes& other, testing::Random& random);

/// Changes a bit or a byte behind the first scan's header, so that a decoder is well under way when
/// it comes there.
void damage_scans(Bytes& bytes, testing::Random& random);

}  // namespace fastloader::fuzz
