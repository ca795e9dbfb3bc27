#include "base/descriptor.h"

#include <unistd.h>

#include <utility>

namespace fastloader {

Descriptor::Descriptor(int fd) noexcept : fd_(fd) {
  struct stat status{};
  if (fd_ >= 0 && fstat(fd_, &status) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

Descriptor::~Descriptor() {
  if (is_kept()) close(fd_);
}

bool Descriptor::is_kept() const noexcept {
  struct stat status{};
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ &&
         status.st_ino == inode_;
}

}  // namespace fastloader
