#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/seek/indices.h"

namespace fastloader {

/// Files of seek indices, as `fastloader index` writes them (docs/seek-index.md), mapped into
/// memory. The bytes are the caller's and must outlive this object. If a file is cut off meanwhile,
/// no index is found in what it lacks.
class SeekFiles final : public SeekIndices {
 public:
  /// Throws InvalidArgument for a file that is none of these, is cut off, or is of another version.
  explicit SeekFiles(const std::vector<SeekBytes>& files);

  void find(uint64_t hash, std::vector<uint8_t>& index) const override;

  /// Of all files.
  uint64_t count() const;

 private:
  struct File {
    SeekBytes bytes;
    const uint8_t* table = nullptr;
    uint64_t count = 0;

    void find(uint64_t hash, std::vector<uint8_t>& index) const;
  };
  std::vector<File> files_;
};

}  // namespace fastloader
