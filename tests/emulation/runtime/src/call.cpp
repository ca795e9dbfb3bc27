#include "state.h"

#include <pthread.h>

#include <cstring>

namespace cuda_emulated {

Call::Call(const char* name, unsigned flags) : name_(name), flags_(flags) {
  State& s = state();
  quiet_begin();
  if (in_forked_child()) {
    // Its lock may be held for ever in this process.
    if ((flags & kProbe) == 0) misuse(name, "called in a forked child");
    refused_ = cudaErrorInitializationError;
    return;
  }
  const uint64_t seed = s.options.delay_seed.value_or(0);  // empty before the very first call
  if (seed != 0) {
    if (t_thread.random == 0) t_thread.random = seed * 7919 + t_thread.number + 1;
    if (next_random(&t_thread.random) % 4 == 0) {
      sleep_us(next_random(&t_thread.random) % (*s.options.max_delay_us + 1));
    }
  }
  s.lock.lock();
  locked_ = true;
  read_options_locked(s);
  refused_ = admit(flags);
}

cudaError_t Call::admit(unsigned flags) {
  State& s = state();
  if (t_thread.number == 0) t_thread.number = ++s.threads_seen;
  if (t_thread.in_host_function) {
    misuse(name_, "called from a host function");
    return cudaErrorNotPermitted;
  }
  if (t_thread.outsider == 0) {
    char thread[16] = "?";
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    ++s.counts[thread][name_];
    // What a guard does on its way is not the call that it guards.
    if ((flags & kDriver) == 0 && std::strcmp(name_, "cudaThreadExchangeStreamCaptureMode") != 0) {
      if (t_thread.strikes > 0 && t_thread.strikes <= s.strikes.size()) {
        s.strikes[t_thread.strikes - 1].next = name_;
      }
      t_thread.strikes = 0;
    }
    const cudaError_t struck = strike_locked(name_);
    if (struck != cudaSuccess) {
      s.strikes.push_back({name_, thread, ""});
      t_thread.strikes = s.strikes.size();
      return struck;
    }
  }
  if ((flags & kContext) != 0) {
    ensure_context_locked(name_);
    const cudaError_t broken = s.devices[t_thread.context].broken;
    if (broken != cudaSuccess) return broken;
  }
  if ((flags & kUnsafeInCapture) != 0 && t_thread.mode != cudaStreamCaptureModeRelaxed) {
    for (const auto& capture : s.captures) {
      const bool mine = capture->thread == t_thread.number;
      if (mine ? capture->mode != cudaStreamCaptureModeRelaxed
               : capture->mode == cudaStreamCaptureModeGlobal &&
                     t_thread.mode == cudaStreamCaptureModeGlobal) {
        note_locked(std::string(name_) + " ruined a capture");
        invalidate_locked(*capture);
        return cudaErrorStreamCaptureUnsupported;
      }
    }
  }
  return cudaSuccess;
}

Call::~Call() {
  if (locked_) state().lock.unlock();
  quiet_end();
}

cudaError_t Call::end(cudaError_t status) {
  if (status != cudaSuccess && (flags_ & kDriver) == 0 &&
      (status != cudaErrorNotReady || state().options.not_ready_is_last_error)) {
    t_thread.last = status;
  }
  return status;
}

void Call::settle(const OperationRef& operation) {
  State& s = state();
  if (operation == nullptr) return;
  while (!operation->done) s.changed.wait(s.lock);
  happens_after(&operation->done_point);
}

cudaError_t Call::wait_for(const OperationRef& operation) {
  if (operation == nullptr) return cudaSuccess;
  settle(operation);
  return state().devices[operation->stream->device].broken;
}

}  // namespace cuda_emulated
