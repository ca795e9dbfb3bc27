#include "case_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace fastloader::testing {
namespace {

constexpr unsigned kSeconds = 60;

/// What `body` does in a child. Empty when it came to its end, or how it ended.
template <typename Body>
std::string in_child(bool talk, Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return "fork failed";
  if (child == 0) {
    if (!talk) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
    }
    alarm(kSeconds);
    try {
      body();
      std::fflush(nullptr);
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGALRM) return "hang";
    return std::string("signal ") + strsignal(WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void* shared_memory(size_t bytes) {
  void* data = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::runtime_error("no memory to share with the cases");
  return data;
}

Verdict run_in_process(const FaultCase& one, Report* report, bool talk) {
  *report = Report{};
  const bool hear_out = !is_always_silent(one.fault.function);
  std::string ended = in_child(talk, [&] { run_case(one, hear_out, report); });
  if (ended.empty() && !report->finished) ended = "it ended early";
  return judge(one, *report, ended);
}

Calls rehearse_in_process(const std::string& scenario) {
  constexpr size_t kRoom = 1 << 16;
  auto* text = static_cast<char*>(shared_memory(kRoom));
  const std::string ended = in_child(true, [&] {
    std::string lines;
    for (const auto& [function, count] : rehearse(scenario)) {
      lines += function + " " + std::to_string(count) + "\n";
    }
    std::snprintf(text, kRoom, "%s", lines.c_str());
  });
  if (!ended.empty()) throw std::runtime_error("the rehearsal of " + scenario + ": " + ended);
  Calls calls;
  std::istringstream lines(text);
  std::string function;
  for (uint64_t count = 0; lines >> function >> count;) calls[function] = count;
  return calls;
}

}  // namespace fastloader::testing
