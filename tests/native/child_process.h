#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "check.h"

#if defined(__SANITIZE_THREAD__)
#define FASTLOADER_TSAN 1
#else
#define FASTLOADER_TSAN 0
#endif

namespace fastloader::testing {

constexpr unsigned kChildSeconds = 60;

struct ChildEnd {
  int exit_code = -1;  ///< -1: killed by `signal`
  int signal = 0;
};

inline ChildEnd wait_for_child(pid_t child) {
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  ChildEnd end;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

/// Runs `body` in a forked child, which exits 0 after it. A child that hangs dies of SIGALRM. The
/// handlers of a sanitizer are taken away, so that a bad access ends in its own signal.
template <typename Body>
ChildEnd in_forked_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    alarm(kChildSeconds);
    try {
      body();
    } catch (const Failure& failure) {
      std::fprintf(stderr, "in a child: %s\n", failure.what.c_str());
      _exit(99);
    } catch (...) {
      _exit(99);
    }
    _exit(0);
  }
  return wait_for_child(child);
}

/// A forked child that waits until it is let go.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) {
    EXPECT(pipe(go_.data()) == 0);
    EXPECT(pipe(ready_.data()) == 0);
    std::fflush(nullptr);
    pid_ = fork();
    EXPECT(pid_ >= 0);
    char byte = 0;
    if (pid_ == 0) {
      alarm(kChildSeconds);
      close(go_[1]);
      const bool began = body() && write(ready_[1], "r", 1) == 1;
      _exit(began && read(go_[0], &byte, 1) == 1 ? 0 : 1);
    }
    close(go_[0]);
    close(ready_[1]);
    EXPECT(read(ready_[0], &byte, 1) == 1);
  }
  ~Child() {
    try {
      end();
    } catch (const Failure&) {
    }
  }

  /// Lets it end; it is a zombie then.
  void let_go() {
    go();
    siginfo_t info{};
    EXPECT(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
  }
  void end() {
    go();
    if (pid_ > 0) EXPECT_EQ(wait_for_child(std::exchange(pid_, 0)).exit_code, 0);
    if (ready_[0] >= 0) close(std::exchange(ready_[0], -1));
  }

 private:
  void go() {
    if (go_[1] < 0) return;
    // A byte, not the end of the pipe: children forked later hold that end, too.
    EXPECT(write(go_[1], "g", 1) == 1);
    close(std::exchange(go_[1], -1));
  }

  std::array<int, 2> go_{};
  std::array<int, 2> ready_{};
  pid_t pid_ = 0;
};

inline constexpr auto kNothing = [] { return true; };

class Pipe {
 public:
  Pipe() { EXPECT(pipe(ends_.data()) == 0); }
  ~Pipe() { close(ends_[0]); }
  int write_end() const { return ends_[1]; }
  /// Returns when no process has the other end.
  void read_to_end() const {
    char byte = 0;
    while (read(ends_[0], &byte, 1) > 0) {
    }
  }

 private:
  std::array<int, 2> ends_{};
};

enum class Says { kAll, kNothing };

/// Starts this executable again with `argument` and waits for it.
inline ChildEnd in_new_process(const char* argument, Says says = Says::kAll) {
  std::fflush(nullptr);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(kChildSeconds);
    if (says == Says::kNothing) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
    }
    execl("/proc/self/exe", "test", argument, static_cast<char*>(nullptr));
    _exit(98);
  }
  return wait_for_child(child);
}

/// A read that no sanitizer looks at and no compiler drops.
__attribute__((no_sanitize("address", "undefined", "thread"), noinline)) inline char peek(
    const void* address) {
  return *static_cast<const volatile char*>(address);
}

}  // namespace fastloader::testing
