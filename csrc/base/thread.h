#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace fastloader {

/// A named thread that is joined by its destructor. A join that takes long is logged every five
/// seconds, never abandoned. In a forked child the destructor forgets the thread: it is not there.
class Thread {
 public:
  Thread() = default;
  /// `name` shows in `top -H` and debuggers (15 characters at most). Signals other than
  /// faults are blocked in the new thread, so that Ctrl-C and SIGCHLD reach Python's.
  Thread(std::string name, std::function<void()> body);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = delete;
  ~Thread();

  void join();
  bool joinable() const { return thread_.joinable(); }
  /// Processor time it has used; 0 once joined, or where the system doesn't tell. Not while another
  /// thread joins it.
  int64_t cpu_ns() const;
  /// It runs on these processors from now on.
  void run_on(const cpu_set_t& processors);

 private:
  struct Finish;
  std::string name_;
  std::shared_ptr<Finish> finish_;
  std::thread thread_;
  uint64_t born_in_ = 0;
};

/// The calling thread yields to the process's others from now on: five steps nicer than it was, a
/// third of their share of a processor that both want. There is no way back without rights.
void lower_own_priority();

}  // namespace fastloader
