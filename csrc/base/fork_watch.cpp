#include "base/fork_watch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <initializer_list>
#include <new>

namespace fastloader {
namespace {

constexpr size_t kEntries = 1024;
constexpr int32_t kNotYet = 0;    // the child has not come to its first instruction, or never will
constexpr int32_t kForGood = -1;  // it forked in turn: who lives on from there is not known here
constexpr uint64_t kClaimed = UINT64_MAX;  // no fork has this number

/// One fork. Lies in memory shared with the child, which writes its own pid: only then is the pid
/// of a child that some library forked known here.
struct Entry {
  // 0: unused. Claimed by compare-exchange, published before the fork. Release to acquire: whoever
  // sees the number sees a `pid` that is not the last owner's.
  std::atomic<uint64_t> fork;
  // Partner: the child. Relaxed suffices: nothing but the number itself is published.
  std::atomic<int32_t> pid;
};

struct Table {
  Entry entries[kEntries];
};

// Of this process. Partners: the fork handlers, on whatever thread forks. Acquire and release: who
// sees the table sees it zeroed.
std::atomic<Table*> g_table{nullptr};
// Partner: any thread that frees memory. Acquire and release order it with the fork that follows.
std::atomic<uint64_t> g_forks{0};
// The last fork for which there was no entry. Only compared.
std::atomic<uint64_t> g_unrecorded{0};
// This process's entry in its parent's table. Written by the child handler alone.
Entry* g_mine = nullptr;
// From one handler of a fork to the next, on the thread that forks.
thread_local Entry* t_pending = nullptr;

bool lives(int32_t pid) noexcept {
  if (pid == kNotYet || pid == kForGood) return true;
  siginfo_t info{};
  // A child that has ended but was not waited for has lost its memory already.
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    return info.si_pid == 0;
  }
  return kill(pid, 0) == 0 || errno != ESRCH;
}

Entry* claim(Table* table, uint64_t fork) noexcept {
  for (const bool sweep : {false, true}) {
    for (Entry& entry : table->entries) {
      uint64_t seen = entry.fork.load(std::memory_order_acquire);
      if (seen != 0 && !(sweep && !lives(entry.pid.load(std::memory_order_relaxed)))) continue;
      if (seen == kClaimed) continue;
      if (entry.fork.compare_exchange_strong(seen, kClaimed, std::memory_order_acq_rel)) {
        entry.pid.store(kNotYet, std::memory_order_relaxed);
        entry.fork.store(fork, std::memory_order_release);
        return &entry;
      }
    }
  }
  return nullptr;
}

void before_fork() {
  const int error = errno;
  if (g_mine != nullptr) g_mine->pid.store(kForGood, std::memory_order_relaxed);
  Table* table = g_table.load(std::memory_order_acquire);
  if (table != nullptr) {
    const uint64_t fork = g_forks.fetch_add(1, std::memory_order_acq_rel) + 1;
    t_pending = claim(table, fork);
    if (t_pending == nullptr) g_unrecorded.store(fork, std::memory_order_relaxed);
  }
  errno = error;
}

void in_parent() { t_pending = nullptr; }

void in_child() {
  g_mine = t_pending;
  t_pending = nullptr;
  if (g_mine != nullptr) g_mine->pid.store(getpid(), std::memory_order_relaxed);
  // The forks of the child are no business of the parent's table.
  g_table.store(nullptr, std::memory_order_relaxed);
}

struct Hooks {
  Hooks() { pthread_atfork(before_fork, in_parent, in_child); }
};

const Hooks g_hooks;

}  // namespace

void watch_forks() {
  if (g_table.load(std::memory_order_acquire) != nullptr) return;
  void* data =
      mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  Table* none = nullptr;
  // Never unmapped: children write to it whenever they like.
  if (!g_table.compare_exchange_strong(none, new (data) Table, std::memory_order_acq_rel)) {
    munmap(data, sizeof(Table));  // another thread was faster
  }
}

uint64_t forks_begun() noexcept { return g_forks.load(std::memory_order_acquire); }

bool forked_child_lives(uint64_t after, uint64_t upto) noexcept {
  if (upto <= after) return false;
  if (g_unrecorded.load(std::memory_order_relaxed) > after) return true;
  const Table* table = g_table.load(std::memory_order_acquire);
  if (table == nullptr) return true;
  for (const Entry& entry : table->entries) {
    const uint64_t fork = entry.fork.load(std::memory_order_acquire);
    if (fork > after && fork <= upto && lives(entry.pid.load(std::memory_order_relaxed))) {
      return true;
    }
  }
  return false;
}

}  // namespace fastloader
