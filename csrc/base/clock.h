#pragma once

#include <chrono>
#include <cstdint>

namespace fastloader {

/// Nanoseconds of the clock that Python's time.perf_counter_ns() reads on Linux, so that both
/// sides' times fit together. A call takes about 25 ns.
inline int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Whether stages are timed at all: always, unless FASTLOADER_STAGE_TIMES=0, which is there so that
/// a benchmark can measure what the timing costs. Read once.
bool times_stages() noexcept;

/// How often the calling thread has waited so far, for a disk, a network or another thread, as the
/// system counts it. Always 0 where the system does not tell (it does on Linux).
uint64_t own_waits();

/// The time since the last look at it, or since it was made.
class Lap {
 public:
  explicit Lap(bool on) : on_(on), last_(on ? now_ns() : 0) {}
  int64_t begun() const { return last_; }
  /// 0 when off.
  int64_t operator()() {
    if (!on_) return 0;
    const int64_t now = now_ns();
    const int64_t passed = now - last_;
    last_ = now;
    return passed;
  }

 private:
  const bool on_;
  int64_t last_;
};

}  // namespace fastloader
