#include "base/shared_mapping.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

// Linux 5.14; older headers lack it and older kernels refuse it, which costs speed only.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace fastloader {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

[[noreturn]] void fail(const char* call, size_t bytes) {
  throw Error(std::string(call) + " for " + std::to_string(bytes) +
              " bytes of shared memory failed: " + std::strerror(errno));
}

}  // namespace

SharedMapping SharedMapping::create(size_t bytes) {
  const size_t page = page_bytes();
  if (bytes == 0) bytes = 1;
  if (bytes > static_cast<size_t>(INT64_MAX) - page) {
    errno = EFBIG;
    fail("mmap", bytes);
  }
  bytes = (bytes + page - 1) / page * page;
  // Not the C library's memfd_create, which came years after the kernel's.
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "fastloader", MFD_CLOEXEC));
  if (fd < 0) fail("memfd_create", bytes);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    fail("ftruncate", bytes);
  }
  SharedMapping made = map(fd, bytes);
  made.fd_ = Descriptor(fd);
  return made;
}

SharedMapping SharedMapping::attach(int fd, size_t bytes) {
  SharedMapping mapped = map(fd, bytes);
  close(fd);
  return mapped;
}

SharedMapping SharedMapping::map(int fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    close(fd);
    errno = error;
    fail("mmap", bytes);
  }
  madvise(data, bytes, MADV_DONTDUMP);  // a core file need not hold batches
  SharedMapping mapped;
  mapped.data_ = static_cast<std::byte*>(data);
  mapped.bytes_ = bytes;
  return mapped;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::move(other.fd_)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  fd_ = std::move(other.fd_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

int SharedMapping::fd() const {
  if (fd_ && !fd_.is_kept()) {
    throw Error("descriptor " + std::to_string(fd_.number()) +
                " of fastloader's shared memory was closed by other code of this process");
  }
  return fd_.number();
}

bool SharedMapping::populate(size_t offset, size_t bytes) const noexcept {
  const size_t page = page_bytes();
  const size_t begin = offset / page * page;
  const size_t end = (offset + bytes + page - 1) / page * page;
  if (end <= begin || end > bytes_) return true;
  // EINVAL: a kernel that does not know how, and where only writing can tell.
  return madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

void SharedMapping::drop(size_t offset, size_t bytes) const noexcept {
  const size_t page = page_bytes();
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + bytes) / page * page;
  if (end > begin && end <= bytes_) madvise(data_ + begin, end - begin, MADV_REMOVE);
}

}  // namespace fastloader
