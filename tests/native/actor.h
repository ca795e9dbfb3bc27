#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "check.h"

namespace fastloader::testing {

/// A second thread of a test. What its body throws, `join` throws; `release` lets it go when the
/// test ends early, so that a failure is told instead of hanging.
class Actor {
 public:
  explicit Actor(std::function<void()> body, std::function<void()> release = {})
      : release_(std::move(release)), thread_([this, body = std::move(body)] {
          tid_ = static_cast<pid_t>(syscall(SYS_gettid));
          try {
            body();
          } catch (...) {
            error_ = std::current_exception();
          }
          finished_ = true;
        }) {}
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  ~Actor() {
    if (!thread_.joinable()) return;
    if (release_) release_();
    thread_.join();
  }

  bool finished() const { return finished_; }

  /// Returns once the body sleeps in the kernel, which is how "it blocks in this call" is seen from
  /// outside. Several looks in a row, since a thread may also sleep for a moment on a mutex.
  void wait_until_asleep() const {
    for (int looks = 0; looks < 5; looks = asleep() ? looks + 1 : 0) {
      if (finished_) throw Failure{"the thread should have blocked, but it finished"};
      std::this_thread::yield();
    }
  }

  void join() {
    thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  bool asleep() const {
    if (tid_ == 0) return false;
    const std::string path = "/proc/self/task/" + std::to_string(tid_) + "/stat";
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return false;
    char text[512] = {};
    const size_t count = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    const std::string stat(text, count);
    const size_t state = stat.rfind(") ");
    return state != std::string::npos && stat[state + 2] == 'S';
  }

  const std::function<void()> release_;
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> finished_{false};
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

/// A one-way door between threads of a test.
class Door {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;  // guards: open_
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace fastloader::testing
