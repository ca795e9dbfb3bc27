#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// The XXH3 hash of 64 bits of these bytes, without a seed: https://xxhash.com. It tells files
/// apart, and finds bytes that were changed by accident. It is no defence against somebody who
/// looks for another file of the same hash.
uint64_t xxh3(const uint8_t* data, size_t size);

}  // namespace fastloader
