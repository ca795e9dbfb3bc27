#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "source/source.h"

namespace fastloader {

/// Samples that lie in memory: in a mapped file, say. Sample i is `sizes[i]` bytes at
/// `addresses[i]`. The tables are the caller's and must outlive the source, as must the samples.
/// A sample is copied before anything looks at it, since its file may be cut off or written over at
/// any time.
/// Entries may be filled in later, before the sample is asked for by a batch; zeros mean that there
/// is no such sample.
class MemorySource final : public Source {
 public:
  struct Table {
    const uint64_t* addresses = nullptr;
    const uint64_t* sizes = nullptr;
  };

  /// `seek_indices`: of the samples that are JPEGs and have one; a null table for none at all.
  MemorySource(const Table& samples, const Table& seek_indices, uint64_t count)
      : samples_(samples), seek_indices_(seek_indices), count_(count) {}

  uint64_t size() const override { return count_; }
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    read_if(index, bytes, nullptr, std::numeric_limits<size_t>::max());
  }
  bool read_if(uint64_t index, std::vector<uint8_t>& bytes, Look look, size_t most) const override;
  void read_seek_index(uint64_t index, std::vector<uint8_t>& bytes) const override;
  std::string name(uint64_t index) const override { return "sample " + std::to_string(index); }

 private:
  const Table samples_;
  const Table seek_indices_;
  const uint64_t count_;
};

}  // namespace fastloader
