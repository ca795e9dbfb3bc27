// Slots that worker processes fill: which process may write to one, when it is free again, and what
// a fork changes about that. "Workers" are threads of control in this process or forked children.

#include "pipeline/shared_slot_table.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fork_watch.h"
#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

using Lease = SharedSlotTable::Lease;

constexpr size_t kMega = size_t{1} << 20;
const std::optional<size_t> kNone;

std::shared_ptr<SharedSlotTable> two_by_three() {
  return SharedSlotTable::create(2, 3, 64 * kMega);
}

/// Memory behind the table, as the system counts it, header included.
size_t resident(int fd) {
  struct stat status{};
  EXPECT(fstat(fd, &status) == 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

/// From now on the system refuses this process another one, with EAGAIN.
void forbid_forks() {
  // The first words of the filter's argument are the number of the call.
  const std::array<sock_filter, 5> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), const_cast<sock_filter*>(filter.data())};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(the_lowest_free_slot_of_the_worker_is_taken) {
  const auto table = two_by_three();
  EXPECT_EQ(table->workers(), size_t{2});
  for (size_t i = 0; i < 3; ++i) EXPECT(table->take(1) == 3 + i);
  EXPECT(table->take(1) == kNone);
  EXPECT(table->take(0) == size_t{0});
  std::shared_ptr<Lease> lease = table->receive(4);
  EXPECT(table->take(1) == kNone);
  lease.reset();
  EXPECT(table->take(1) == size_t{4});
  EXPECT_THROW(table->take(2), InvalidArgument, "worker 2 of 2");
}

TEST(a_slot_is_received_once_and_only_from_a_worker) {
  const auto table = two_by_three();
  EXPECT_THROW(table->receive(0), Error, "no worker has it");
  EXPECT_THROW(table->receive(6), Error, "slot 6");
  EXPECT(table->take(0) == size_t{0});
  const auto lease = table->receive(0);
  EXPECT_THROW(table->receive(0), Error, "no worker has it");
  EXPECT_EQ(table->slots_held(), size_t{1});
  EXPECT_THROW(lease->at(64 * kMega - 7, 8), InvalidArgument, "no 8 bytes");
  EXPECT_THROW(lease->at(8, SIZE_MAX), InvalidArgument, "in slot 0 of 6");
  EXPECT(lease->at(64 * kMega, 0) != nullptr);
}

TEST(reclaim_frees_what_was_with_workers_and_nothing_else) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  EXPECT(table->take(0) == size_t{1});
  const auto lease = table->receive(1);
  table->reclaim();
  EXPECT(table->take(0) == size_t{0});
  EXPECT(table->take(0) == size_t{2});
  EXPECT(table->take(0) == kNone);
}

TEST(a_lease_outlives_the_table) {
  auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  std::memset(table->memory()->at(0, 0, 100), 7, 100);
  const std::weak_ptr<SharedSlotTable> watched = table;
  auto lease = table->receive(0);
  table.reset();
  EXPECT_EQ(static_cast<int>(*lease->at(99, 1)), 7);
  std::thread([&] { lease.reset(); }).join();
  EXPECT(watched.expired());
}

TEST(the_reads_of_an_old_batch_are_over_when_its_slot_is_taken) {
  const auto table = SharedSlotTable::create(1, 2, kMega);
  for (int i = 0; i < 200; ++i) {
    const size_t slot = table->take(0).value();
    std::memset(table->memory()->at(slot, 0, 1000), i, 1000);  // ThreadSanitizer watches these
    std::vector<std::thread> readers;
    std::atomic<int> wrong{0};
    auto lease = table->receive(slot);
    for (int reader = 0; reader < 2; ++reader) {
      readers.emplace_back([lease, i, &wrong]() mutable {
        const std::byte* data = lease->at(0, 1000);
        for (int k = 0; k < 1000; ++k) wrong += data[k] != static_cast<std::byte>(i);
        lease.reset();
      });
    }
    lease.reset();
    std::optional<size_t> again;
    while (!(again = table->take(0)) || *again != slot) {
      if (again) table->reclaim();
      std::this_thread::yield();
    }
    std::memset(table->memory()->at(slot, 0, 1000), 255, 1000);
    table->reclaim();
    for (std::thread& each : readers) each.join();
    EXPECT_EQ(wrong.load(), 0);
  }
}

TEST(a_slot_that_a_child_may_see_is_not_free_while_it_lives) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  EXPECT(table->take(0) == size_t{1});
  auto seen = table->receive(0);
  Child child(kNothing);
  auto unseen = table->receive(1);
  seen.reset();
  unseen.reset();
  EXPECT(table->take(0) == size_t{1});
  EXPECT(table->take(0) == size_t{2});
  EXPECT(table->take(0) == kNone);
  child.let_go();  // not waited for: its memory is gone all the same
  EXPECT(table->take(0) == size_t{0});
}

TEST(every_child_that_may_see_a_slot_counts) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  Child first(kNothing);
  Child second(kNothing);
  lease.reset();
  Child later(kNothing);  // forked after the last tensor had died
  first.end();
  EXPECT(table->take(0) == size_t{1});
  second.end();
  EXPECT(table->take(0) == size_t{0});
}

TEST(a_grandchild_may_see_it_after_the_child) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  Pipe end;  // open at the grandchild's side for as long as that lives
  Pipe go;
  Child child([&] {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      alarm(kChildSeconds);
      close(go.write_end());
      go.read_to_end();
      _exit(0);
    }
    return grandchild > 0;
  });
  close(end.write_end());
  lease.reset();
  child.end();
  EXPECT(table->take(0) == size_t{1});
  close(go.write_end());
  end.read_to_end();
  EXPECT(table->take(0) == size_t{0});
}

TEST(a_child_that_calls_exec_sees_nothing_any_more) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  Pipe called;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    fcntl(called.write_end(), F_SETFD, FD_CLOEXEC);
    execlp("sleep", "sleep", "60", nullptr);
    _exit(1);
  }
  close(called.write_end());
  called.read_to_end();
  lease.reset();
  const bool free_again = table->take(0) == size_t{0};
  const bool alive = kill(child, SIGKILL) == 0;
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(alive && WIFSIGNALED(status));
  EXPECT(free_again);
}

TEST(a_fork_that_fails_keeps_no_slot) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  const ChildEnd end = in_forked_child([&] {
    const auto own = two_by_three();
    EXPECT(own->take(0) == size_t{0});
    auto mine = own->receive(0);
    forbid_forks();
    for (int i = 0; i < 2000; ++i) {  // more than can be remembered at a time
      EXPECT(fork() == -1);
      EXPECT_EQ(errno, EAGAIN);
    }
    mine.reset();
    EXPECT(own->take(0) == size_t{0});
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(a_child_frees_nothing_and_its_own_table_knows_its_own_children) {
  const auto table = two_by_three();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  std::memset(lease->at(0, 4096), 9, 4096);
  const ChildEnd end = in_forked_child([&] {
    const auto own = two_by_three();
    EXPECT(own->take(0) == size_t{0});
    auto mine = own->receive(0);
    Child child(kNothing);
    mine.reset();
    EXPECT(own->take(0) == size_t{1});
    child.end();
    EXPECT(own->take(0) == size_t{0});
    EXPECT_EQ(static_cast<int>(*lease->at(4095, 1)), 9);
    lease.reset();
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(static_cast<int>(*lease->at(4095, 1)), 9);
  EXPECT_EQ(table->slots_held(), size_t{1});
}

TEST(entries_of_children_that_have_ended_are_used_again) {
  const auto table = two_by_three();
  for (int i = 0; i < 1100; ++i) {
    EXPECT_EQ(in_forked_child([] {}).exit_code, 0);
  }
  EXPECT(table->take(0) == size_t{0});
  table->receive(0).reset();
  EXPECT(table->take(0) == size_t{0});
  auto lease = table->receive(0);
  Child child(kNothing);
  lease.reset();
  EXPECT(table->take(0) == size_t{1});
}

TEST(a_worker_writes_and_the_consumer_reads) {
  const auto table = two_by_three();
  EXPECT(table->take(1) == size_t{3});
  const ChildEnd forked = in_forked_child([&] {
    const auto slots = WorkerSlots::create(table->memory());
    EXPECT(slots->begin(3));
    EXPECT(slots->place(3, 100) == size_t{0});
    std::memset(slots->memory().at(3, 0, 100), 5, 100);
  });
  EXPECT_EQ(forked.exit_code, 0);
  auto lease = table->receive(3);
  EXPECT_EQ(static_cast<int>(*lease->at(99, 1)), 5);
  // A process that did not inherit the mapping has the descriptor instead.
  SlotMemory attached(dup(table->memory()->fd()), 6, 64 * kMega);
  EXPECT(attached.at(3, 0, 1) != lease->at(0, 1));
  EXPECT_EQ(static_cast<int>(*attached.at(3, 99, 1)), 5);
  EXPECT_EQ(attached.fd(), -1);
  EXPECT_THROW(SlotMemory(-1, 6, kMega), Error, "shared memory");
}

TEST(a_worker_leaves_a_slot_alone_that_it_still_holds) {
  const auto slots = WorkerSlots::create(std::make_shared<SlotMemory>(2, kMega));
  EXPECT(slots->begin(0));
  EXPECT(slots->collate(0, 1000) == size_t{0});
  auto held = slots->hold(0);
  EXPECT(!slots->begin(0));
  EXPECT(slots->begin(1));
  std::thread([&] { held.reset(); }).join();
  EXPECT(slots->begin(0));
}

TEST(what_samples_had_needed_is_written_over_and_what_is_in_the_batch_is_not) {
  const auto slots = WorkerSlots::create(std::make_shared<SlotMemory>(1, kMega));
  EXPECT(slots->begin(0));
  for (int sample = 0; sample < 5; ++sample) {
    EXPECT(slots->collate(0, 1000) == size_t{0});
    slots->hold(0).reset();
  }
  EXPECT(slots->collate(0, 10) == size_t{0});
  const auto held = slots->hold(0);
  EXPECT(slots->collate(0, 10) == size_t{64});
  EXPECT(slots->place(0, 1) == size_t{128});
  EXPECT(slots->place(0, 1) == size_t{192});  // no tensor holds a copy
  EXPECT(slots->place(0, kMega - 256) == size_t{256});
  EXPECT(slots->place(0, 1) == kNone);
  EXPECT(slots->place(0, SIZE_MAX) == kNone);
}

TEST(an_unusually_large_batch_gives_its_memory_back) {
  const auto table = SharedSlotTable::create(1, 1, 64 * kMega);
  const auto slots = WorkerSlots::create(table->memory());
  const int fd = table->memory()->fd();
  const auto batch = [&](size_t bytes) {
    EXPECT(table->take(0) == size_t{0});
    EXPECT(slots->begin(0));
    const size_t offset = slots->place(0, bytes).value();
    std::memset(table->memory()->at(0, offset, bytes), 1, bytes);
    slots->finish(0);
    table->receive(0).reset();
  };
  for (int i = 0; i < 4; ++i) batch(2 * kMega);
  EXPECT(resident(fd) < 3 * kMega);
  batch(48 * kMega);
  EXPECT(resident(fd) > 47 * kMega);
  EXPECT(table->touched_bytes() >= 48 * kMega);
  for (int i = 0; i < 60; ++i) batch(2 * kMega);
  EXPECT(resident(fd) < 12 * kMega);
  EXPECT(table->touched_bytes() < 12 * kMega);
}

TEST(a_table_that_is_gone_holds_no_memory_in_children) {
  auto table = two_by_three();
  const int fd = dup(table->memory()->fd());
  EXPECT(table->take(0) == size_t{0});
  EXPECT(table->take(0) == size_t{1});
  const auto slots = WorkerSlots::create(table->memory());
  for (const size_t slot : {size_t{0}, size_t{1}}) {
    EXPECT(slots->begin(slot));
    (void)slots->place(slot, 4 * kMega);
    std::memset(table->memory()->at(slot, 0, 4 * kMega), 3, 4 * kMega);
  }
  auto seen = table->receive(0);
  const std::byte* in_child = seen->at(0, 1);
  {
    Child child(kNothing);
    EXPECT(resident(fd) >= 8 * kMega);
    seen.reset();
    table.reset();  // the mapping lives on: `slots` has it
    EXPECT(resident(fd) >= 4 * kMega);
    EXPECT(resident(fd) < 5 * kMega);
    EXPECT_EQ(static_cast<int>(*in_child), 3);
  }
  close(fd);
}

TEST(memory_that_the_system_does_not_have_is_no_room) {
  const auto memory = std::make_shared<SlotMemory>(1, 4 * kMega);
  const auto slots = WorkerSlots::create(memory);
  EXPECT(slots->begin(0));
  EXPECT(slots->place(0, 100) == size_t{0});
  constexpr int kPopulateWrite = 23;
  if (madvise(memory->at(0, 0, 1), 1, kPopulateWrite) != 0) {
    throw Skip{"this kernel has no MADV_POPULATE_WRITE"};
  }
  // Without these pages, a write would end in SIGBUS, as it does when memory has run out.
  EXPECT(ftruncate(memory->fd(), static_cast<off_t>(kMega)) == 0);
  EXPECT(slots->place(0, 2 * kMega) == kNone);
  EXPECT(slots->place(0, 100) == size_t{128});
}

TEST(sizes_that_cannot_be) {
  EXPECT_THROW(SharedSlotTable::create(0, 1, kMega), InvalidArgument, "needs slots");
  EXPECT_THROW(SharedSlotTable::create(1, 1, 0), InvalidArgument, "needs slots");
  EXPECT_THROW(SharedSlotTable::create(4, 4, SIZE_MAX / 8), InvalidArgument, "address space");
  EXPECT_THROW(SharedSlotTable::create(4, 1, SIZE_MAX / 17), Error,
               "failed");  // more than there are addresses
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
