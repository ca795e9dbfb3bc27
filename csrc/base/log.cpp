#include "base/log.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/per_process.h"

namespace fastloader {
namespace {

constexpr size_t kKept = 64;

struct Sink {
  std::mutex mutex;  // guards: kept
  LogDrain kept;
  // Partner: log_pending. Relaxed suffices: a stale answer delays a message by one batch, and the
  // messages themselves are read under the mutex.
  std::atomic<bool> pending{false};
};

// Leaked on purpose: a thread may still log while statics are being destroyed. A forked child has
// one of its own, since what has gathered is the parent's to tell.
Sink& sink() { return per_process<Sink>(); }

}  // namespace

void log_warning(std::string message) noexcept {
  try {
    Sink& s = sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.kept.messages.size() < kKept) {
      s.kept.messages.push_back(std::move(message));
    } else {
      ++s.kept.dropped;
    }
    s.pending.store(true, std::memory_order_relaxed);
  } catch (...) {  // Out of memory while warning: the warning is what we can do without.
  }
}

LogDrain drain_log() {
  Sink& s = sink();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.pending.store(false, std::memory_order_relaxed);
  return std::exchange(s.kept, LogDrain{});
}

bool log_pending() noexcept { return sink().pending.load(std::memory_order_relaxed); }

}  // namespace fastloader
