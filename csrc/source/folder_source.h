#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "source/source.h"

namespace fastloader {

/// Files by path. The paths lie in one run of bytes, file i's from `ends[i - 1]` (0 for the first)
/// to `ends[i]`: eight bytes a file beside the paths themselves. Both arrays are the caller's and
/// must outlive the source.
class FolderSource final : public Source {
 public:
  /// Throws InvalidArgument when the ends decrease or exceed `path_bytes`.
  FolderSource(const char* paths, uint64_t path_bytes, const uint64_t* ends, uint64_t count);

  uint64_t size() const override { return count_; }
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    read_if(index, bytes, nullptr, std::numeric_limits<size_t>::max());
  }
  bool read_if(uint64_t index, std::vector<uint8_t>& bytes, Look look, size_t most) const override;
  bool may_wait() const override { return true; }
  void read_together(std::vector<Wanted>& wanted, size_t most, const Told& told) const override;
  size_t together() const override;
  std::string name(uint64_t index) const override;

 private:
  const char* const paths_;
  const uint64_t* const ends_;
  const uint64_t count_;
};

}  // namespace fastloader
