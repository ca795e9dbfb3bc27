#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
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
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(
        "the system starts no thread " + name_ + " (" + error.code().message() +
        "): this process, its user or its container may have no more of them. Look at `ulimit "
        "-u`, pids.max of the control group and /proc/sys/kernel/threads-max, or ask for fewer");
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Thread::~Thread() {
  if (thread_.joinable()) join();
}

int64_t Thread::cpu_ns() const {
  if (!thread_.joinable() || born_in_ != fork_generation()) return 0;
  clockid_t clock{};
  timespec time{};
  // Only asks by the handle. native_handle() is not const, since a handle could also change it.
  const auto handle = const_cast<std::thread&>(thread_).native_handle();
  if (pthread_getcpuclockid(handle, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void Thread::run_on(const cpu_set_t& processors) {
  if (!thread_.joinable() || born_in_ != fork_generation()) return;
  pthread_setaffinity_np(thread_.native_handle(), sizeof processors, &processors);
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

void lower_own_priority() {
  constexpr int kSteps = 5;
  // On Linux priorities are a thread's, against POSIX. To lower one's own is always allowed.
  const auto self = static_cast<id_t>(syscall(SYS_gettid));
  errno = 0;  // -1 is a priority, too
  const int before = getpriority(PRIO_PROCESS, self);
  if (errno == 0) setpriority(PRIO_PROCESS, self, std::min(before + kSteps, 19));
}

}  // namespace fastloader
