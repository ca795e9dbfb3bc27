#include "base/trace.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "base/per_process.h"

namespace fastloader::trace {

namespace detail {
std::atomic<uint64_t> session{0};
}  // namespace detail

namespace {

/// One thread's events of one trace. Written by that thread, read by stop().
struct Buffer {
  Buffer(uint64_t number, size_t capacity)
      : session(number), room(capacity), events(new Event[capacity]) {
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name = text.data();
  }

  const uint64_t session;
  const size_t room;
  const std::unique_ptr<Event[]> events;  // pages that no event has reached cost nothing
  const int64_t thread = syscall(SYS_gettid);
  std::string name;
  // Partner: stop() reads it with acquire, and then only what lies below it. The writer only ever
  // writes above, so a thread that is late by an event does no harm.
  std::atomic<size_t> count{0};
  std::atomic<uint64_t> dropped{0};  // relaxed: a number by itself
};

struct Registry {
  std::mutex mutex;      // guards everything below
  uint64_t running = 0;  // 0: none
  size_t room = 0;
  std::vector<std::shared_ptr<Buffer>> buffers;
};

Registry& registry() { return per_process<Registry>(); }

// Outside of the registry, which a forked child makes anew: no number may come again for its
// threads. Relaxed: nothing else depends on it.
std::atomic<uint64_t> last_session{0};

// Weak: a sleeping thread must not keep a buffer that was handed over or given up.
thread_local std::weak_ptr<Buffer> t_buffer;

std::shared_ptr<Buffer> begin_thread() {
  Registry& shared = registry();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.running == 0) return nullptr;  // stopped meanwhile, or a forked child
  auto made = std::make_shared<Buffer>(shared.running, shared.room);
  shared.buffers.push_back(made);
  t_buffer = made;
  return made;
}

}  // namespace

bool start(size_t events_per_thread) {
  Registry& shared = registry();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.running != 0) return false;
  shared.running = last_session.fetch_add(1, std::memory_order_relaxed) + 1;
  shared.room = events_per_thread;
  detail::session.store(shared.running, std::memory_order_relaxed);
  return true;
}

std::vector<ThreadEvents> stop() {
  Registry& shared = registry();
  std::vector<std::shared_ptr<Buffer>> buffers;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    detail::session.store(0, std::memory_order_relaxed);
    shared.running = 0;
    buffers.swap(shared.buffers);
  }
  std::vector<ThreadEvents> all;
  for (const auto& buffer : buffers) {
    const size_t count = buffer->count.load(std::memory_order_acquire);
    all.push_back({buffer->thread,
                   buffer->name,
                   {buffer->events.get(), buffer->events.get() + count},
                   buffer->dropped.load(std::memory_order_relaxed)});
  }
  return all;
}

void record(const char* name, int64_t begin, int64_t end) noexcept {
  const uint64_t session = detail::session.load(std::memory_order_relaxed);
  if (session == 0) return;
  try {
    std::shared_ptr<Buffer> mine = t_buffer.lock();
    if (mine == nullptr || mine->session != session) mine = begin_thread();
    if (mine == nullptr) return;
    const size_t count = mine->count.load(std::memory_order_relaxed);
    if (count == mine->room) {
      mine->dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    mine->events[count] = Event{name, begin, end};
    mine->count.store(count + 1, std::memory_order_release);
  } catch (const std::exception&) {
    // No memory for a buffer: a timeline is not worth a training run.
  }
}

}  // namespace fastloader::trace
