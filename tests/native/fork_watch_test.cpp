// Which forked children may still see this process's memory, and what becomes of the descriptors by
// which that is known. Each test has a process of its own: what is known of forks is kept for good.

#include "base/fork_watch.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shared_mapping.h"
#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

constexpr int kMost = 256;

std::string target(int fd) {
  std::array<char, 256> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), name.data(), name.size());
  return size < 0 ? "" : std::string(name.data(), static_cast<size_t>(size));
}

/// Descriptors of this process with such a name.
std::vector<int> named(const std::string& name) {
  std::vector<int> found;
  for (int fd = 0; fd < kMost; ++fd) {
    if (target(fd).find("/memfd:" + name + " ") == 0) found.push_back(fd);
  }
  return found;
}

/// The user's memory, which has got the number `fd` after other code had closed that.
void take_over(int fd) {
  const int users =
      static_cast<int>(syscall(SYS_memfd_create, "users", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT(users >= 0 && ftruncate(users, 1) == 0);
  EXPECT(dup2(users, fd) == fd);
  EXPECT(close(users) == 0);
}

bool is_untouched(int fd) {
  return target(fd).find("/memfd:users ") == 0 && fcntl(fd, F_GET_SEALS) == 0;
}

void allow_descriptors(rlim_t count) {
  rlimit limit{};
  EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = count;
  EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/// The number of the fork that this is.
template <typename Body>
uint64_t number_of_fork(Body body) {
  const uint64_t before = forks_begun();
  body();
  EXPECT_EQ(forks_begun(), before + 1);
  return before + 1;
}

bool lives(uint64_t number) { return forked_child_lives(number - 1, number); }

TEST(a_descriptor_that_is_somebody_elses_by_now_is_left_alone) {
  const ChildEnd end = in_forked_child([] {
    watch_forks();
    const uint64_t earlier = number_of_fork([] { in_forked_child([] {}); });
    std::unique_ptr<Child> child;
    const uint64_t number = number_of_fork([&] { child = std::make_unique<Child>(kNothing); });
    const std::vector<int> marks = named("fastloader-fork");
    EXPECT_EQ(marks.size(), size_t{1});
    take_over(marks[0]);
    const ChildEnd inherits = in_forked_child([&] { EXPECT(is_untouched(marks[0])); });
    EXPECT_EQ(inherits.exit_code, 0);
    EXPECT(lives(number));
    child->end();
    EXPECT(lives(number));  // nothing can tell any more
    EXPECT(!lives(earlier));
    EXPECT(!lives(number_of_fork([] { in_forked_child([] {}); })));
    EXPECT(is_untouched(marks[0]));
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(a_descriptor_that_was_closed_tells_nothing) {
  const ChildEnd end = in_forked_child([] {
    watch_forks();
    std::unique_ptr<Child> child;
    const uint64_t number = number_of_fork([&] { child = std::make_unique<Child>(kNothing); });
    EXPECT(close(named("fastloader-fork").at(0)) == 0);
    EXPECT(lives(number));
    child->end();
    EXPECT(lives(number));
    EXPECT(!lives(number_of_fork([] { in_forked_child([] {}); })));
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(many_children_cost_few_descriptors) {
  const ChildEnd end = in_forked_child([] {
    watch_forks();
    allow_descriptors(96);
    std::vector<std::unique_ptr<Child>> children;
    std::vector<uint64_t> numbers;
    for (int i = 0; i < 30; ++i) {
      numbers.push_back(
          number_of_fork([&] { children.push_back(std::make_unique<Child>(kNothing)); }));
      EXPECT(named("fastloader-fork").size() <= 12);
    }
    for (const uint64_t number : numbers) EXPECT(lives(number));
    children.front()->end();
    EXPECT(!lives(numbers.front()));
    for (size_t i = 1; i < numbers.size(); ++i) EXPECT(lives(numbers[i]));
    children.clear();
    for (const uint64_t number : numbers) EXPECT(!lives(number));
    in_forked_child([] {});
    EXPECT_EQ(named("fastloader-fork").size(), size_t{1});
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(a_fork_without_a_descriptor_to_spare_shares_one) {
  const ChildEnd end = in_forked_child([] {
    watch_forks();
    Child first(kNothing);
    std::array<int, 2> go{};
    EXPECT(pipe(go.data()) == 0);
    allow_descriptors(static_cast<rlim_t>(go[1]) + 1);
    EXPECT_EQ(dup(0), -1);
    pid_t second = 0;
    const uint64_t number = number_of_fork([&] { second = fork(); });
    if (second == 0) {
      alarm(kChildSeconds);
      char byte = 0;
      _exit(read(go[0], &byte, 1) == 1 ? 0 : 1);
    }
    first.end();
    EXPECT(lives(number));
    EXPECT(write(go[1], "g", 1) == 1);
    EXPECT_EQ(wait_for_child(second).exit_code, 0);
    EXPECT(!lives(number));
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(shared_memory_whose_descriptor_was_closed) {
  const ChildEnd end = in_forked_child([] {
    auto mapping = std::make_unique<SharedMapping>(SharedMapping::create(4096));
    const int fd = mapping->fd();
    EXPECT(mapping->has_descriptor());
    take_over(fd);
    EXPECT(!mapping->has_descriptor());
    EXPECT_THROW((void)mapping->fd(), Error, "closed by other code");
    *mapping->data() = std::byte{7};  // the memory is there all the same
    EXPECT(*mapping->data() == std::byte{7});
    mapping.reset();
    EXPECT(is_untouched(fd));
  });
  EXPECT_EQ(end.exit_code, 0);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
