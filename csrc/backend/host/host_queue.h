#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backend/host/watermark.h"
#include "backend/lifetime.h"
#include "backend/sticky_error.h"
#include "base/thread.h"

namespace fastloader {

struct HostBackendOptions {
  int devices = 1;
#ifdef FASTLOADER_TEST_HOOKS
  /// Not 0: every task of every stream sleeps first, 0 to `max_delay`, drawn from (seed, number of
  /// the stream, number of the task) and so the same in each run.
  uint64_t delay_seed = 0;
  std::chrono::microseconds max_delay{200};
  /// The n-th copy or normalise of the backend, counted from 1 as they are called, fails and leaves
  /// its output alone. 0: never.
  uint64_t fail_on_call = 0;
  /// Every copy from the host sleeps that long first: a slow bus.
  std::chrono::microseconds copy_delay{0};
  bool fail_pinning = false;
#endif
};

#ifdef FASTLOADER_TEST_HOOKS
/// The sleep before a task; both numbers count from 1. Zero when `options` ask for no delays.
std::chrono::microseconds host_task_delay(const HostBackendOptions& options, uint64_t stream,
                                          uint64_t task) noexcept;
#endif

/// One thread and the tasks it runs in order. Tasks are pushed through a one-way list (see
/// Watermark), so a caller learns nothing from pushing; only a ticket or `synchronize` orders it
/// behind a task.
class HostQueue {
 public:
  HostQueue(int device, uint64_t number, const HostBackendOptions& options);
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// `task` must not throw. Throws BackendError after `close`, and in a forked child, where no
  /// thread would run it.
  void push(std::function<void()> task);
  void synchronize();
  /// Runs what is left and joins the thread.
  void close();
  /// Call it instead of `close`. Keeps for good all that `kept` owns, this queue included. The
  /// queue holds it, and the thread refers to the queue, so a leak checker finds it.
  void abandon(std::shared_ptr<void> kept) noexcept { kept_ = std::move(kept); }

  int device() const { return device_; }
  uint64_t number() const { return number_; }
  StickyError& error() { return error_; }
  const Lifetime& lifetime() const { return lifetime_; }

 private:
  struct Node {
    std::function<void()> task;  // empty: stop
    Node* next = nullptr;
  };

  void require_own_process() const;
  void push_locked(std::function<void()> task);
  void run();

  const int device_;
  const uint64_t number_;
  const HostBackendOptions options_;
  const Lifetime lifetime_;
  StickyError error_;

  std::unique_ptr<Node> head_;  // the stream's thread only; the node before the next task

  // Guards: tail_, tasks_pushed_, synchronizations_, closed_. Only pushing threads take it.
  std::mutex push_mutex_;
  Node* tail_;
  uint64_t tasks_pushed_ = 0;
  uint64_t synchronizations_ = 0;
  bool closed_ = false;

  std::shared_ptr<void> kept_;  // once abandoned

  Watermark pushed_;  // number of nodes that may be read behind head_
  Watermark synced_;  // number of synchronizations done
  Thread thread_;     // last: it uses the others
};

}  // namespace fastloader
