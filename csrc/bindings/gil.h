#pragma once

#include <unistd.h>

#include "bindings/register.h"

namespace fastloader::bindings {

/// Releases the GIL for its scope. Unlike pybind11's, it lets a daemon thread that comes back after
/// the interpreter began to exit hang, as Python 3.14 does, until the process is gone: Python
/// before that ends such a thread by pthread_exit, whose unwinding would meet a destructor and
/// abort.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // the unwinding of pthread_exit, which may not be stopped, but need not go on
      for (;;) pause();
    }
  }

 private:
  PyThreadState* const state_;
};

}  // namespace fastloader::bindings
