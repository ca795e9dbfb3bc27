#pragma once

#include <atomic>
#include <memory>

#include "base/process.h"

namespace fastloader {

/// The one T of this process, made at the first call and never destroyed. A forked child gets one
/// of its own: the parent's, whose threads are not there, is leaked.
template <class T>
T& per_process() {
  struct Instance {
    const uint64_t made_in = fork_generation();
    T value;
  };
  // Not a mutex: a child could inherit it locked by a thread that it does not have. Partner:
  // itself; acquire and release publish the instance.
  static std::atomic<Instance*> current{nullptr};
  Instance* instance = current.load(std::memory_order_acquire);
  while (instance == nullptr || instance->made_in != fork_generation()) {
    // One that came second is dropped again: it has not started anything.
    auto made = std::make_unique<Instance>();
    if (current.compare_exchange_strong(instance, made.get(), std::memory_order_acq_rel)) {
      return made.release()->value;
    }
  }
  return instance->value;
}

}  // namespace fastloader
