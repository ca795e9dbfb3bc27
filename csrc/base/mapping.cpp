#include "base/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

#include "base/process.h"

namespace fastloader {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t whole_pages(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t wanted = bytes == 0 ? 1 : bytes;
  if (wanted > SIZE_MAX - page) throw std::bad_alloc();
  return (wanted + page - 1) / page * page;
}

}  // namespace

Mapping::Mapping(size_t bytes, InChild in_child) : bytes_(whole_pages(bytes)) {
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data;
  // Both pieces of advice are optional to the kernel; a refusal costs speed, never correctness: a
  // child would copy pages that it does not use.
  if (bytes_ >= kHugePage) madvise(data_, bytes_, MADV_HUGEPAGE);
  if (in_child == InChild::kAbsent && madvise(data_, bytes_, MADV_DONTFORK) == 0) {
    absent_after_ = fork_generation();
  }
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      absent_after_(std::exchange(other.absent_after_, kNever)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(absent_after_, other.absent_after_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  if (absent_after_ != kNever && absent_after_ != fork_generation()) return;
  munmap(data_, bytes_);
}

}  // namespace fastloader
