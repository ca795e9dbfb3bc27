#include "base/log.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <utility>

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

// Leaked on purpose: a thread may still log while statics are being destroyed.
Sink& sink() {
  static Sink* instance = [] {
    // Held across a fork, or the child could inherit it locked by a thread that is not there. What
    // has gathered is the parent's to tell.
    pthread_atfork([] { sink().mutex.lock(); }, [] { sink().mutex.unlock(); },
                   [] {
                     sink().kept = LogDrain{};
                     sink().pending.store(false, std::memory_order_relaxed);
                     sink().mutex.unlock();
                   });
    return new Sink;
  }();
  return *instance;
}

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
