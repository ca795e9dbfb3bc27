#include "backend/host/host_stream.h"

#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/checks.h"
#include "backend/host/host_memory.h"
#include "base/error.h"
#include "image/normalize/augment_kernel.h"
#include "image/normalize/kernel.h"

namespace fastloader {

HostEvent::HostEvent(std::shared_ptr<HostShared> shared, HostEventState& state, int device)
    : shared_(std::move(shared)), state_(state), device_(device) {}

bool HostEvent::done(uint64_t generation) const { return state_.finished.reached(generation); }

void HostEvent::wait_host(uint64_t generation) {
  if (done(generation)) return;
  if (lifetime_.in_forked_child()) {
    throw BackendError("host device " + std::to_string(device_) +
                       ": this event was made before the process forked; nobody will finish it");
  }
  state_.finished.wait(generation);
}

HostEvent& HostEvent::of(Event& event, const HostShared* backend) {
  auto* mine = dynamic_cast<HostEvent*>(&event);
  if (mine == nullptr || mine->shared_.get() != backend) {
    throw InvalidArgument("this event belongs to another backend");
  }
  return *mine;
}

HostStream::HostStream(std::shared_ptr<HostShared> shared, std::shared_ptr<HostQueue> queue,
                       int device, Owns owns)
    : shared_(std::move(shared)), queue_(std::move(queue)), device_(device), owns_(owns) {}

HostStream::~HostStream() {
  if (owns_ == Owns::kNothing) return;
  if (!queue_->lifetime().may_release()) {
    using Kept = std::pair<std::shared_ptr<HostShared>, std::shared_ptr<HostQueue>>;
    queue_->abandon(std::make_shared<Kept>(shared_, queue_));
    return;
  }
  {
    const std::unique_lock<std::shared_mutex> lock(shared_->mutex);
    shared_->queues.erase(handle());
  }
  queue_->close();
}

void HostStream::submit(std::function<void()> task) {
  if (queue_ == nullptr) {
    task();
  } else {
    queue_->push(std::move(task));
  }
}

StickyError& HostStream::error() { return queue_ == nullptr ? own_error_ : queue_->error(); }

std::string HostStream::describe(const char* call, const std::string& what) const {
  return std::string(call) + " failed on host device " + std::to_string(device_) + ": " + what;
}

#ifdef FASTLOADER_TEST_HOOKS
void HostStream::operation(const char* call, std::function<void()> body) {
  const uint64_t number = shared_->operations.fetch_add(1, std::memory_order_relaxed) + 1;
  auto& broken = shared_->broken[static_cast<size_t>(device_)];
  if (number == shared_->options.fail_on_call) {
    std::string what = describe(call, "injected failure of call " + std::to_string(number));
    submit([&error = error(), &broken, what = std::move(what)] {
      error.fail(what);
      broken.store(true, std::memory_order_relaxed);
    });
    return;
  }
  // A device whose work failed does no more of it. The kernels behind a failed copy would take
  // memory for indices that nothing has written.
  submit([&broken, body = std::move(body)] {
    if (!broken.load(std::memory_order_relaxed)) body();
  });
}

void HostStream::delay_copy() {
  const std::chrono::microseconds delay = shared_->options.copy_delay;
  if (delay.count() > 0) submit([delay] { std::this_thread::sleep_for(delay); });
}
#else
void HostStream::operation(const char* /*call*/, std::function<void()> body) {
  submit(std::move(body));
}

void HostStream::delay_copy() {}
#endif

void HostStream::copy(const char* call, void* dst, const void* src, size_t bytes) {
  operation(call, [dst, src, bytes] {
    if (bytes > 0) std::memcpy(real_address(dst), real_address(src), bytes);
  });
}

void HostStream::copy_h2d_async(void* dst, const void* src, size_t bytes) {
  delay_copy();
  copy("copy_h2d", dst, src, bytes);
}

void HostStream::copy_d2d_async(void* dst, const void* src, size_t bytes) {
  copy("copy_d2d", dst, src, bytes);
}

void HostStream::copy_d2h_async(void* dst, const void* src, size_t bytes) {
  copy("copy_d2h", dst, src, bytes);
}

void HostStream::normalize_async(const NormalizeSpec& spec, const void* in, void* out) {
  require_normalizable(spec, in, out);
  operation("normalize", [spec, in = real_address(in), out = real_address(out)] {
    const NormalizeGrid grid = make_normalize_grid(spec);
    visit_normalize_kernel(spec, [&](auto kernel) {
      for (size_t thread = 0; thread < grid.threads(); ++thread) kernel(grid, in, out, thread);
    });
  });
}

void HostStream::augment_async(const AugmentSpec& spec, const void* records, const void* in,
                               void* out) {
  require_augmentable(spec, records, in, out);
  operation("augment", [spec, records = real_address(records), in = real_address(in),
                        out = real_address(out)] {
    const AugmentGrid grid = make_augment_grid(spec);
    visit_augment_kernel(spec, [&](auto kernel) {
      for (size_t thread = 0; thread < grid.threads(); ++thread) {
        kernel(grid, kNormalTable, records, in, out, thread);
      }
    });
  });
}

#ifdef FASTLOADER_TEST_HOOKS
void HostStream::host_function_async(std::function<void()> function) {
  submit([this_error = &error(), name = describe("host_function", ""),
          function = std::move(function)] {
    try {
      function();
    } catch (const std::exception& failure) {
      this_error->fail(name + failure.what());
    } catch (...) {
      this_error->fail(name + "unknown exception");
    }
  });
}
#endif

Ticket HostStream::record(Event& event) {
  HostEvent& mine = HostEvent::of(event, shared_.get());
  if (mine.device() != device_) {
    throw InvalidArgument("an event of host device " + std::to_string(mine.device()) +
                          " cannot be recorded on a stream of device " + std::to_string(device_));
  }
  HostEventState& state = mine.state();
  const uint64_t number = queue_ == nullptr ? 0 : queue_->number();
  // On one stream the generations finish in order. From two streams they need not, and a waiter
  // could be let go by the wrong one.
  if (state.recorded_by != number && !state.finished.reached(state.recorded)) {
    throw InvalidArgument(
        "this event was recorded on another stream and its ticket is still outstanding");
  }
  const uint64_t generation = state.recorded + 1;
  state.recorded = generation;
  state.recorded_by = number;
  submit([&state, generation] { state.finished.raise(generation); });
  return Ticket{&event, generation};
}

void HostStream::wait(const Ticket& ticket) {
  if (ticket.event == nullptr) return;
  HostEvent& mine = HostEvent::of(*ticket.event, shared_.get());
  if (queue_ == nullptr) {
    mine.wait_host(ticket.generation);
    return;
  }
  // Even a ticket that is done already goes through the queue: looking here would order the caller
  // behind it, which a device never does.
  queue_->push(
      [&state = mine.state(), generation = ticket.generation] { state.finished.wait(generation); });
}

void HostStream::synchronize() {
  if (queue_ != nullptr) queue_->synchronize();
  check();
}

void HostStream::check() { error().rethrow(); }

uintptr_t HostStream::handle() const {
  return queue_ == nullptr ? 0 : static_cast<uintptr_t>(queue_->number());
}

}  // namespace fastloader
