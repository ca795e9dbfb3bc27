#pragma once

#include <sys/stat.h>

namespace fastloader {

/// A file descriptor that is kept for long. Other code may close the descriptor and open another
/// file that gets the same number; code that makes a daemon closes all of them. `is_kept` tells
/// whether it is still the same file, and the destructor asks before it closes. Move-only.
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
