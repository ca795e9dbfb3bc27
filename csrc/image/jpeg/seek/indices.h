#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

  /// Replaces the contents of `index` by that of the file with this xxh3(), or by nothing.
  virtual void find(uint64_t hash, std::vector<uint8_t>& index) const = 0;
};

}  // namespace fastloader
