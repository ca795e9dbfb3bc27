#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "backend/host_function.h"
#include "check.h"

namespace fastloader::testing {

/// Holds streams at a point until the test lets them go, so that an order is forced, never slept
/// for. Declare it after the streams: its destructor opens it, and theirs drain.
///
/// One closed gate at a time may be reached on CUDA: its host functions share a thread.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }

  /// Work queued on `stream` after this call waits for `open`.
  void close(Stream& stream) {
    auto* functions = dynamic_cast<HostFunctionStream*>(&stream);
    if (functions == nullptr) throw Skip{"this backend's streams run no host functions"};
    functions->host_function_async([state = state_] {
      std::unique_lock<std::mutex> lock(state->mutex);
      state->reached = true;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return state->opened; });
    });
  }

  /// Returns once the stream stands at the gate: everything before it has finished.
  void wait_until_reached() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->reached; });
  }

  void open() {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->opened = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;  // guards: reached, opened
    std::condition_variable changed;
    bool reached = false;
    bool opened = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace fastloader::testing
