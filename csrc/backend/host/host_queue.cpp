#include "backend/host/host_queue.h"

#include <thread>
#include <utility>

#include "base/error.h"

namespace fastloader {

#ifdef FASTLOADER_TEST_HOOKS
namespace {

uint64_t mix(uint64_t x) noexcept {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::chrono::microseconds host_task_delay(const HostBackendOptions& options, uint64_t stream,
                                          uint64_t task) noexcept {
  if (options.delay_seed == 0 || options.max_delay.count() <= 0) return {};
  const uint64_t draw = mix(mix(mix(options.delay_seed) ^ stream) ^ task);
  const uint64_t choices = static_cast<uint64_t>(options.max_delay.count()) + 1;
  return std::chrono::microseconds(static_cast<int64_t>(draw % choices));
}
#endif

HostQueue::HostQueue(int device, uint64_t number, const HostBackendOptions& options)
    : device_(device),
      number_(number),
      options_(options),
      head_(std::make_unique<Node>()),
      tail_(head_.get()),
      thread_("fl-twin-" + std::to_string(number), [this] { run(); }) {}

HostQueue::~HostQueue() { close(); }

void HostQueue::push(std::function<void()> task) {
  require_own_process();
  const std::lock_guard<std::mutex> lock(push_mutex_);
  push_locked(std::move(task));
}

// Asked before locking: a thread that held the mutex during the fork is not here to give it back.
void HostQueue::require_own_process() const {
  if (!lifetime_.in_forked_child()) return;
  throw BackendError("host device " + std::to_string(device_) +
                     ": this stream was made before the process forked and cannot be used in the "
                     "child");
}

void HostQueue::push_locked(std::function<void()> task) {
  if (closed_) {
    throw BackendError("host device " + std::to_string(device_) + ": stream " +
                       std::to_string(number_) + " was destroyed");
  }
  Node* node = new Node{std::move(task), nullptr};
  tail_->next = node;
  tail_ = node;
  pushed_.raise(++tasks_pushed_);
}

void HostQueue::synchronize() {
  uint64_t ticket = 0;
  require_own_process();
  {
    const std::lock_guard<std::mutex> lock(push_mutex_);
    ticket = ++synchronizations_;
    push_locked([this, ticket] { synced_.raise(ticket); });
  }
  synced_.wait(ticket);
}

void HostQueue::close() {
  {
    const std::lock_guard<std::mutex> lock(push_mutex_);
    if (closed_) return;
    push_locked({});
    closed_ = true;
  }
  thread_.join();
}

void HostQueue::run() {
  for (uint64_t task = 1;; ++task) {
    pushed_.wait(task);
    head_.reset(head_->next);
    if (!head_->task) return;
#ifdef FASTLOADER_TEST_HOOKS
    const std::chrono::microseconds delay = host_task_delay(options_, number_, task);
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
#endif
    head_->task();
    head_->task = nullptr;  // what a task holds goes when it ends, not when the next one begins
  }
}

}  // namespace fastloader
