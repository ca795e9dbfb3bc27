#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace fastloader {

/// A number that only grows. A thread that sees it reach a value also sees what the raising thread
/// wrote before. Nothing flows the other way. A mutex with a condition variable would order waiters
/// before later raisers, too. No ticket creates that order, and it would hide races from
/// ThreadSanitizer.
class Watermark {
 public:
  /// `value` is above every earlier one; one thread at a time.
  void raise(uint64_t value) noexcept {
    value_.store(value, std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &changes_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  bool reached(uint64_t value) const noexcept {
    return value_.load(std::memory_order_acquire) >= value;
  }

  void wait(uint64_t value) const noexcept {
    for (;;) {
      const uint32_t seen = changes_.load(std::memory_order_acquire);
      if (reached(value)) return;
      // Returns at once when changes_ moved on; a spurious return only costs a turn.
      syscall(SYS_futex, &changes_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel reads changes_");

  // Partners: raise and reached. Release and acquire carry what the raiser wrote.
  std::atomic<uint64_t> value_{0};
  // Partners: raise and wait. Read before value_ and raised after it, so that a waiter which missed
  // the new value holds an old count and the kernel refuses to put it to sleep.
  std::atomic<uint32_t> changes_{0};
};

}  // namespace fastloader
