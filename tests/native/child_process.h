#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

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
    } catch (...) {
      _exit(99);
    }
    _exit(0);
  }
  return wait_for_child(child);
}

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
