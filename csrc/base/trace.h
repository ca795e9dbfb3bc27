#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

/// What the threads of this process do, for a timeline. Off until a call of start().
namespace fastloader::trace {

struct Event {
  const char* name;  // a literal
  int64_t begin;     // now_ns()
  int64_t end;
};

/// Of one thread, in the order in which they ended.
struct ThreadEvents {
  int64_t thread = 0;  ///< as the kernel numbers it
  std::string name;
  std::vector<Event> events;
  uint64_t dropped = 0;  ///< did not fit any more
};

namespace detail {
/// 0 while off, else the number of the trace. Relaxed: it only says whether to take the slow way,
/// and an event more or less at either end does not matter.
extern std::atomic<uint64_t> session;
}  // namespace detail

/// The cost of being off: one relaxed load.
inline bool on() noexcept { return detail::session.load(std::memory_order_relaxed) != 0; }

/// Every thread keeps its first `events_per_thread` events until stop(). False when a trace is
/// being taken already.
bool start(size_t events_per_thread);
/// Ends the trace and hands over what there is; empty if there was none.
std::vector<ThreadEvents> stop();

/// Adds an event of the calling thread while on. Events that began before start() are left out.
/// Takes no lock but at a thread's first event of a trace; drops the event when memory is short.
void record(const char* name, int64_t begin, int64_t end) noexcept;

/// Its own lifetime as an event.
class Span {
 public:
  explicit Span(const char* name) noexcept : name_(name), begin_(on() ? now_ns() : 0) {}
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (begin_ != 0) record(name_, begin_, now_ns());
  }

 private:
  const char* const name_;
  const int64_t begin_;
};

}  // namespace fastloader::trace
