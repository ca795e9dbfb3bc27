#pragma once

#include <functional>

namespace fastloader {

/// A hook for tests, outside the contract: both backends' streams also implement it (ask with
/// dynamic_cast). It is how a test holds a stream at a known point without sleeping. Without
/// FASTLOADER_TEST_HOOKS there is nothing to implement.
class HostFunctionStream {
#ifdef FASTLOADER_TEST_HOOKS
 public:
  virtual ~HostFunctionStream() = default;

  /// Runs `function` on some host thread, in the stream's order. It may block; it must not call the
  /// backend. An exception becomes the stream's sticky error.
  virtual void host_function_async(std::function<void()> function) = 0;
#endif
};

}  // namespace fastloader
