#pragma once

#include <sys/stat.h>

namespace fastloader {

/// A file descriptor that is kept for long. Other code of the process may close it meanwhile, as
/// whoever makes a daemon closes all there are, and open something else that gets its number: asked
/// is first whether it is still the same file. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  /// Takes `fd` over; -1 is none.
  explicit Descriptor(int fd) noexcept;
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  /// Closes it, if it is still the same file.
  ~Descriptor();

  explicit operator bool() const noexcept { return fd_ >= 0; }
  int number() const noexcept { return fd_; }
  bool is_kept() const noexcept;

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace fastloader
