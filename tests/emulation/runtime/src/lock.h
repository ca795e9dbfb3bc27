#pragma once

// A lock and a condition that ThreadSanitizer does not see. The real driver orders a caller behind
// another only where CUDA's documentation says so; a std::mutex in here would order all callers and
// hide their races. What is promised is told to ThreadSanitizer by `happens_*` below.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

extern "C" {
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
void AnnotateIgnoreReadsBegin(const char* file, int line) __attribute__((weak));
void AnnotateIgnoreReadsEnd(const char* file, int line) __attribute__((weak));
void AnnotateIgnoreWritesBegin(const char* file, int line) __attribute__((weak));
void AnnotateIgnoreWritesEnd(const char* file, int line) __attribute__((weak));
void __asan_poison_memory_region(const volatile void* address, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* address, size_t size) __attribute__((weak));
}

namespace cuda_emulated {

inline void happens_before(void* point) {
  if (__tsan_release) __tsan_release(point);
}
inline void happens_after(void* point) {
  if (__tsan_acquire) __tsan_acquire(point);
}

/// The emulator's own memory accesses are none of the sanitizer's business.
inline void quiet_begin() {
  if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  if (AnnotateIgnoreWritesBegin) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void quiet_end() {
  if (AnnotateIgnoreWritesEnd) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  if (AnnotateIgnoreReadsEnd) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

inline long futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  return syscall(SYS_futex, word, operation, value, nullptr, nullptr, 0);
}

class Lock {
 public:
  void lock() {
    uint32_t seen = 0;
    if (state_.compare_exchange_strong(seen, 1)) return;
    if (seen != 2) seen = state_.exchange(2);
    while (seen != 0) {
      futex(&state_, FUTEX_WAIT_PRIVATE, 2);
      seen = state_.exchange(2);
    }
  }
  void unlock() {
    if (state_.exchange(0) == 2) futex(&state_, FUTEX_WAKE_PRIVATE, 1);
  }

 private:
  std::atomic<uint32_t> state_{0};  // 2: locked, and somebody waits
};

class Condition {
 public:
  void wait(Lock& lock) {
    const uint32_t seen = changes_.load();
    lock.unlock();
    futex(&changes_, FUTEX_WAIT_PRIVATE, seen);
    lock.lock();
  }
  void notify_all() {
    changes_.fetch_add(1);
    futex(&changes_, FUTEX_WAKE_PRIVATE, INT_MAX);
  }

 private:
  std::atomic<uint32_t> changes_{0};
};

}  // namespace cuda_emulated
