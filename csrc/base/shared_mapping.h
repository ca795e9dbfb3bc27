#pragma once

#include <cstddef>

#include "base/descriptor.h"

namespace fastloader {

/// Anonymous memory that several processes see at once: a memfd, mapped shared. It is sparse: a
/// page costs memory from the first write to it until `drop`. A forked child
/// inherits the mapping; any other process maps it from the descriptor. No name in /dev/shm, and
/// none of its size limit. Move-only.
class SharedMapping {
 public:
  SharedMapping() = default;
  /// `bytes` is rounded up to whole pages. Throws Error, with what the system said.
  static SharedMapping create(size_t bytes);
  /// Maps what another process created. Takes `fd` over, also when it throws, and closes it: the
  /// mapping does without.
  static SharedMapping attach(int fd, size_t bytes);

  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// The descriptor to hand to another process; -1 after `attach`. Throws Error when other code has
  /// closed it: `has_descriptor` tells before.
  int fd() const;
  bool has_descriptor() const noexcept { return fd_.is_kept(); }

  /// Makes the pages of a range present, so that writing to them does not fault one by one. False
  /// if the system has no memory for them: writing would end in SIGBUS.
  bool populate(size_t offset, size_t bytes) const noexcept;
  /// Gives the whole pages inside a range back to the system: every process then reads zeros there.
  void drop(size_t offset, size_t bytes) const noexcept;

 private:
  static SharedMapping map(int fd, size_t bytes);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Descriptor fd_;
};

}  // namespace fastloader
