#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace fastloader {

/// Memory that only grows, aligned for any vector. Growing loses the contents.
template <class T>
class GrowingBuffer {
 public:
  /// At least `count` elements, all zero if memory had to grow, otherwise as they were left.
  T* require(size_t count) {
    if (count > capacity_) {
      capacity_ = 0;  // in case the allocation throws
      memory_.reset();
      memory_.reset(static_cast<T*>(::operator new(count * sizeof(T), kAlignment)));
      std::memset(memory_.get(), 0, count * sizeof(T));
      capacity_ = count;
    }
    return memory_.get();
  }

  T* data() const { return memory_.get(); }
  size_t bytes() const { return capacity_ * sizeof(T); }

 private:
  static constexpr std::align_val_t kAlignment{64};

  struct Delete {
    void operator()(T* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<T, Delete> memory_;
  size_t capacity_ = 0;
};

}  // namespace fastloader
