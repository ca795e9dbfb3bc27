#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastloader {

/// The first failure of a stream, kept for good.
class StickyError {
 public:
  void fail(std::string what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_.empty()) first_ = std::move(what);
  }

  /// Throws BackendError with the first failure, if there was one.
  void rethrow() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!first_.empty()) throw BackendError(first_);
  }

 private:
  // Guards: first_. A task takes it only when it fails. A caller that asks at each batch therefore
  // gains no order over tasks that it has not waited for.
  mutable std::mutex mutex_;
  std::string first_;
};

}  // namespace fastloader
