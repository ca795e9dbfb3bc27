// That ThreadSanitizer sees the races of a program on the emulated runtime: its locks are not to
// order what CUDA leaves unordered.

#include <libgen.h>

#include <array>

#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

/// What the control says on stderr in its variant.
std::string reports(const char* variant) {
  std::array<char, 4096> self{};
  EXPECT(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const std::string control = std::string(dirname(self.data())) + "/cuda_emulated_race_control";
  std::array<int, 2> ends{};
  EXPECT(pipe(ends.data()) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(kChildSeconds);
    setenv("TSAN_OPTIONS", "halt_on_error=0", 1);
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl(control.c_str(), control.c_str(), variant, static_cast<char*>(nullptr));
    _exit(98);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
    said.append(part.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  EXPECT(wait_for_child(child).exit_code != 98);
  return said;
}

bool race(const std::string& said) { return said.find("data race") != std::string::npos; }

TEST(a_program_in_order_is_not_reported) { EXPECT_EQ(reports("good"), std::string()); }

TEST(a_source_that_is_written_while_the_copy_may_run_is_reported) {
  EXPECT_EQ(race(reports("bad")), bool{FASTLOADER_TSAN});
}

TEST(a_stream_that_reads_without_having_waited_is_reported) {
  EXPECT_EQ(race(reports("order")), bool{FASTLOADER_TSAN});
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
