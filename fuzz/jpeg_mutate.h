#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_samples.h"

namespace fastloader::fuzz {

using Bytes = std::vector<uint8_t>;

/// One small JPEG of every make; the same on every run. None is stored.
std::vector<Bytes> make_seeds();

/// Changes `bytes` in one of the ways listed in README.md; `other` is what to splice with.
void mutate(Bytes& bytes, const Bytes& other, testing::Random& random);

}  // namespace fastloader::fuzz
