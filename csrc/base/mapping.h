#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// An anonymous private mapping: zero-filled, page-aligned, unmapped by the destructor.
/// Move-only. May be destroyed on any thread and in a forked child, where an absent mapping is left
/// alone: its addresses may belong to something else there.
class Mapping {
 public:
  enum class InChild {
    kCopied,  ///< copy-on-write, as ordinary memory: for what users hold
    kAbsent,  ///< not there at all (MADV_DONTFORK): for what a device may be writing or reading
  };

  Mapping() = default;
  /// `bytes` is rounded up to whole pages; 0 gives one page. Large mappings ask for huge pages.
  /// Throws std::bad_alloc when the kernel refuses.
  Mapping(size_t bytes, InChild in_child);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t absent_after_ = kNever;  // fork generation it was made in, if it is not inherited
};

}  // namespace fastloader
