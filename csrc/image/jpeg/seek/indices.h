#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// The bytes of a seek index (seek/index.h), or nothing. Does not own them.
struct SeekBytes {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

/// Seek indices of many pictures, found by what the pictures' files contain: names may change, and
/// the same picture may lie in several places. Any thread may ask.
class SeekIndices {
 public:
  SeekIndices() = default;
  SeekIndices(const SeekIndices&) = delete;
  SeekIndices& operator=(const SeekIndices&) = delete;
  virtual ~SeekIndices() = default;

  /// Of the file with this xxh3(). Stays valid as long as this object.
  virtual SeekBytes find(uint64_t hash) const = 0;
};

}  // namespace fastloader
