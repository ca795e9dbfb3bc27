#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host/host_queue.h"
#include "backend/host/watermark.h"
#include "backend/host_function.h"
#include "backend/lifetime.h"

namespace fastloader {

/// The state that an event's tasks refer to. It lives as long as the backend: a task that waits may
/// still be queued when the ticket is done and the event is gone. A reference count instead would
/// order the threads that drop it.
struct HostEventState {
  Watermark finished;
  // Written by the recording thread. No thread may record the event of an outstanding ticket; that
  // rule orders the writers, and ThreadSanitizer sees a thread that breaks it.
  uint64_t recorded = 0;
  uint64_t recorded_by = 0;  // number of the queue
};

/// The state that the objects of one backend share. Tasks never touch it.
struct HostShared {
#ifdef FASTLOADER_TEST_HOOKS
  explicit HostShared(const HostBackendOptions& wanted)
      : options(wanted), broken(static_cast<size_t>(wanted.devices > 0 ? wanted.devices : 0)) {}
#else
  explicit HostShared(const HostBackendOptions& wanted) : options(wanted) {}
#endif

  const HostBackendOptions options;
#ifdef FASTLOADER_TEST_HOOKS
  // No partner: only counts calls. Relaxed, so that it orders no threads.
  std::atomic<uint64_t> operations{0};
  // Of each device: whether an operation has failed. Partners: the tasks of its streams. Relaxed,
  // so that it orders no threads: a task behind the failure's ticket sees it by the ticket's order.
  std::vector<std::atomic<bool>> broken;
#endif
  // Guards: queues, queues_made, events. Shared for looking up a handle, which pipelines do at
  // work: readers do not order each other.
  std::shared_mutex mutex;
  std::map<uintptr_t, std::shared_ptr<HostQueue>> queues;
  uint64_t queues_made = 0;
  std::deque<HostEventState> events;
};

class HostEvent final : public Event {
 public:
  HostEvent(std::shared_ptr<HostShared> shared, HostEventState& state, int device);

  bool done(uint64_t generation) const override;
  void wait_host(uint64_t generation) override;

  /// Throws InvalidArgument unless that backend made it.
  static HostEvent& of(Event& event, const HostShared* backend);

  HostEventState& state() { return state_; }
  int device() const { return device_; }

 private:
  const std::shared_ptr<HostShared> shared_;
  HostEventState& state_;
  const int device_;
  const Lifetime lifetime_;
};

/// A stream of the host twin: tasks run on one thread of their own, in order, later. Without a
/// queue (external handle 0) they run at once on the calling thread, the twin's default stream.
/// Tasks that fail do not stop the stream, which remembers the first error; but no stream of the
/// device copies or computes anything more.
class HostStream final : public Stream, public HostFunctionStream {
 public:
  enum class Owns { kQueue, kNothing };

  HostStream(std::shared_ptr<HostShared> shared, std::shared_ptr<HostQueue> queue, int device,
             Owns owns);
  ~HostStream() override;

  void copy_h2d_async(void* dst, const void* src, size_t bytes) override;
  void copy_d2d_async(void* dst, const void* src, size_t bytes) override;
  void copy_d2h_async(void* dst, const void* src, size_t bytes) override;
  void normalize_async(const NormalizeSpec& spec, const void* in, void* out) override;
  void augment_async(const AugmentSpec& spec, const void* records, const void* in,
                     void* out) override;
  Ticket record(Event& event) override;
  void wait(const Ticket& ticket) override;
  void synchronize() override;
  void check() override;
  uintptr_t handle() const override;
#ifdef FASTLOADER_TEST_HOOKS
  void host_function_async(std::function<void()> function) override;
#endif

 private:
  void copy(const char* call, void* dst, const void* src, size_t bytes);
  /// A task that a test may choose to fail.
  void operation(const char* call, std::function<void()> body);
  /// A test may have asked for a slow bus.
  void delay_copy();
  void submit(std::function<void()> task);
  std::string describe(const char* call, const std::string& what) const;
  StickyError& error();

  const std::shared_ptr<HostShared> shared_;
  const std::shared_ptr<HostQueue> queue_;  // null: the calling thread
  const int device_;
  const Owns owns_;
  StickyError own_error_;  // without a queue
};

}  // namespace fastloader
