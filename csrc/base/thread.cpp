#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/process.h"

namespace fastloader {

struct Thread::Finish {
  std::mutex mutex;  // guards: finished
  std::condition_variable changed;
  bool finished = false;
};

Thread::Thread(std::string name, std::function<void()> body)
    : name_(std::move(name)), finish_(std::make_shared<Finish>()), born_in_(fork_generation()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A fault is delivered to the thread that caused it. Blocked, it would kill the process without
  // asking the handlers of faulthandler or a sanitizer.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([name = name_, body = std::move(body), finish = finish_] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      body();
      const std::lock_guard<std::mutex> lock(finish->mutex);
      finish->finished = true;
      finish->changed.notify_all();
    });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Thread::~Thread() {
  if (thread_.joinable()) join();
}

void Thread::join() {
  if (!thread_.joinable()) return;
  if (born_in_ != fork_generation()) {
    thread_.detach();
    return;
  }
  {
    std::unique_lock<std::mutex> lock(finish_->mutex);
    int waited = 0;
    while (!finish_->changed.wait_for(lock, std::chrono::seconds(5),
                                      [this] { return finish_->finished; })) {
      waited += 5;
      log_warning("still waiting for thread '" + name_ + "' to finish after " +
                  std::to_string(waited) + " s");
    }
  }
  thread_.join();
}

}  // namespace fastloader
