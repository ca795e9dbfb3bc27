#pragma once

#include <cstdint>
#include <utility>

#include "base/process.h"

namespace fastloader {

/// Remembers in which process an object was made. Threads and device state can be given back only
/// there, and only before the process begins to exit; otherwise the owner leaks them.
class Lifetime {
 public:
  bool in_forked_child() const noexcept { return born_in_ != fork_generation(); }
  bool may_release() const noexcept { return !in_forked_child() && !process_exiting(); }

 private:
  uint64_t born_in_ = fork_generation();
};

/// A member whose destructor runs only while `Lifetime::may_release`.
template <typename T>
class Leakable {
 public:
  explicit Leakable(T value) : value_(std::move(value)) {}
  Leakable(const Leakable&) = delete;
  Leakable& operator=(const Leakable&) = delete;
  ~Leakable() {
    if (lifetime_.may_release()) value_.~T();
  }

  T& get() { return value_; }
  const T& get() const { return value_; }

 private:
  // A union's member is destroyed by hand, so skipping it leaks without a heap object left behind.
  union {
    T value_;
  };
  Lifetime lifetime_;
};

}  // namespace fastloader
