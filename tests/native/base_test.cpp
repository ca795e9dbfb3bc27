// Mapping, Thread, the log, and what is known about forks and the process's end.

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <string>

#include "actor.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/process.h"
#include "base/thread.h"
#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

using InChild = Mapping::InChild;

TEST(a_mapping_is_whole_zeroed_pages) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
    const Mapping mapping(bytes, InChild::kCopied);
    EXPECT(mapping.bytes() >= std::max<size_t>(bytes, 1));
    EXPECT(mapping.bytes() < bytes + 4097 && mapping.bytes() % 4096 == 0);
    EXPECT(reinterpret_cast<uintptr_t>(mapping.data()) % 4096 == 0);
    auto* data = static_cast<char*>(mapping.data());
    EXPECT(std::all_of(data, data + mapping.bytes(), [](char c) { return c == 0; }));
    std::memset(data, 1, mapping.bytes());
  }
}

TEST(a_mapping_moves) {
  Mapping first(4096, InChild::kCopied);
  void* const data = first.data();
  Mapping second(std::move(first));
  EXPECT(second.data() == data);
  EXPECT_EQ(second.bytes(), size_t{4096});
  Mapping third;
  EXPECT(third.data() == nullptr && third.bytes() == 0);
  third = std::move(second);
  EXPECT(third.data() == data);
  third = Mapping(8192, InChild::kCopied);  // unmaps the old one
  EXPECT_EQ(third.bytes(), size_t{8192});
  std::memset(third.data(), 1, third.bytes());
}

TEST(a_destroyed_mapping_is_gone) {
  const ChildEnd end = in_forked_child([] {
    void* data = nullptr;
    {
      const Mapping mapping(4096, InChild::kCopied);
      data = mapping.data();
    }
    peek(data);
  });
  EXPECT_EQ(end.signal, SIGSEGV);
}

TEST(too_large_a_mapping_is_refused) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2}) {
    bool refused = false;
    try {
      const Mapping mapping(bytes, InChild::kCopied);
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    EXPECT(refused);
  }
}

TEST(a_child_has_a_copy_or_nothing) {
  const Mapping copied(4096, InChild::kCopied);
  const Mapping absent(4096, InChild::kAbsent);
  *static_cast<char*>(copied.data()) = 5;
  const ChildEnd end = in_forked_child([&] {
    EXPECT_EQ(int{*static_cast<char*>(copied.data())}, 5);
    *static_cast<char*>(copied.data()) = 6;
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(int{*static_cast<char*>(copied.data())}, 5);
  EXPECT_EQ(in_forked_child([&] { peek(absent.data()); }).signal, SIGSEGV);
}

std::string name_of_this_thread() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

TEST(a_thread_has_its_name) {
  for (const std::string wanted : {"fl-test", "fl-a-name-that-is-too-long", ""}) {
    std::string name;
    Thread thread(wanted, [&] { name = name_of_this_thread(); });
    thread.join();
    EXPECT(!thread.joinable());
    thread.join();  // again: nothing
    EXPECT_EQ(name, wanted.substr(0, 15));
  }
}

TEST(signals_are_blocked_in_a_thread_and_nowhere_else) {
  sigset_t before, inside, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Thread thread("fl-test", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  thread.join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGINT, SIGCHLD, SIGTERM, SIGUSR1, SIGALRM}) {
    EXPECT_EQ(sigismember(&inside, number), 1);
    EXPECT_EQ(sigismember(&before, number), sigismember(&after, number));
    EXPECT_EQ(sigismember(&after, number), 0);
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    EXPECT_EQ(sigismember(&inside, fault), 0);  // faulthandler has to see them
  }
}

TEST(a_thread_is_joined_by_its_destructor) {
  std::atomic<bool> ended{false};
  Door go;
  std::unique_ptr<Thread> thread = std::make_unique<Thread>("fl-test", [&] {
    go.pass();
    ended = true;
  });
  Actor destroyer(
      [&] {
        thread.reset();
        EXPECT(ended);
      },
      [&] { go.open(); });
  destroyer.wait_until_asleep();
  go.open();
  destroyer.join();
}

TEST(a_thread_moves) {
  std::atomic<int> runs{0};
  Thread none;
  EXPECT(!none.joinable());
  none.join();
  {
    Thread first("fl-test", [&] { ++runs; });
    Thread second(std::move(first));
    EXPECT(!first.joinable() && second.joinable());
  }
  EXPECT_EQ(runs.load(), 1);
}

TEST(a_forked_child_forgets_threads) {
  Door go;
  auto thread = std::make_unique<Thread>("fl-test", [&] { go.pass(); });
  const ChildEnd end = in_forked_child([&] {
    thread->join();
    EXPECT(!thread->joinable());
    thread.reset();
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT(thread->joinable());
  go.open();
}

TEST(the_log_is_bounded_and_counts_what_it_drops) {
  drain_log();
  EXPECT(!log_pending());
  for (int i = 0; i < 100; ++i) log_warning("message " + std::to_string(i));
  EXPECT(log_pending());
  const LogDrain drained = drain_log();
  EXPECT_EQ(drained.messages.size(), size_t{64});
  EXPECT_EQ(drained.messages.front(), std::string("message 0"));
  EXPECT_EQ(drained.messages.back(), std::string("message 63"));
  EXPECT_EQ(drained.dropped, uint64_t{36});
  EXPECT(!log_pending());
  EXPECT(drain_log().messages.empty());
  log_warning("another");
  EXPECT_EQ(drain_log().dropped, uint64_t{0});
}

TEST(the_log_takes_messages_from_any_thread) {
  drain_log();
  const auto body = [] {
    for (int i = 0; i < 200; ++i) log_warning("from a thread");
  };
  Actor first(body);
  Actor second(body);
  uint64_t seen = 0;
  for (int looks = 0; looks < 50; ++looks) {
    const LogDrain drained = drain_log();
    seen += drained.messages.size() + drained.dropped;
  }
  first.join();
  second.join();
  const LogDrain drained = drain_log();
  EXPECT_EQ(seen + drained.messages.size() + drained.dropped, uint64_t{400});
}

TEST(a_forked_child_may_log_and_starts_empty) {
  drain_log();
  std::atomic<bool> stop{false};
  Actor busy(
      [&] {
        while (!stop) log_warning("busy");
      },
      [&] { stop = true; });
  for (int i = 0; i < 20; ++i) {
    const ChildEnd end = in_forked_child([] {
      EXPECT(!log_pending());
      log_warning("from the child");
      EXPECT_EQ(drain_log().messages.size(), size_t{1});
    });
    EXPECT_EQ(end.signal, 0);
    EXPECT_EQ(end.exit_code, 0);
  }
  stop = true;
  busy.join();
  drain_log();
}

TEST(forks_are_counted_in_the_child) {
  const uint64_t here = fork_generation();
  const ChildEnd end = in_forked_child([&] {
    EXPECT_EQ(fork_generation(), here + 1);
    EXPECT(in_forked_child([&] { EXPECT_EQ(fork_generation(), here + 2); }).exit_code == 0);
    EXPECT_EQ(fork_generation(), here + 1);
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(fork_generation(), here);
}

TEST(the_end_of_the_process_is_known) {
  EXPECT(!process_exiting());
  const ChildEnd end = in_forked_child([] {
    set_process_exiting();
    EXPECT(process_exiting());
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT(!process_exiting());
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
