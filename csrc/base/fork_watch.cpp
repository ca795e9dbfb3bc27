#include "base/fork_watch.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <utility>

namespace fastloader {
namespace {

constexpr size_t kMark = 1;  // bytes; never touched, so that they cost no memory

/// Whether anybody still has the memory of one fork: a page of shared memory that the parent maps
/// before the fork and unmaps after it. The child has inherited the mapping, its children inherit
/// it in turn, and whoever ends, calls exec or never came to be has it no longer. The system
/// refuses to seal the page against writing as long as somebody could write to it.
///
/// Not the child's pid: the parent cannot know it, the child cannot tell that it is about to call
/// exec, and numbers come again. Not the end of a pipe: daemons close what they inherited.
class Mark {
 public:
  /// Before the fork. False: the system has no descriptor or no memory for it.
  bool put() noexcept {
    fd_ = static_cast<int>(
        syscall(SYS_memfd_create, "fastloader-fork", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd_ < 0) return false;
    if (ftruncate(fd_, kMark) == 0) {
      data_ = mmap(nullptr, kMark, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      if (data_ != MAP_FAILED) return true;
    }
    drop();
    return false;
  }
  /// After it, in the parent.
  void unmap() noexcept { munmap(std::exchange(data_, nullptr), kMark); }
  /// Nobody is asked again.
  void drop() noexcept { close(std::exchange(fd_, -1)); }

  bool put_up() const noexcept { return fd_ >= 0; }
  bool seen() const noexcept { return fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE) != 0; }

 private:
  int fd_ = -1;
  void* data_ = nullptr;
};

struct Fork {
  uint64_t number = 0;
  Mark mark;
};

/// The forks of this process whose children may be alive. More than this many at a time, or no
/// descriptor left: from then on such a fork counts as one whose child lives for ever.
constexpr size_t kForks = 1024;

struct Watch {
  std::mutex mutex;  // guards what follows; held over a fork, so that the child finds it in order
  bool on = false;
  std::array<Fork, kForks> forks;
  uint64_t unrecorded = 0;  // the last fork without a mark
  Fork* pending = nullptr;  // from one handler of a fork to the next
};

Watch g_watch;
// Partner: any thread that frees memory. Acquire and release order it with the fork that follows.
std::atomic<uint64_t> g_forks{0};

/// Forgets the forks whose memory nobody has. Under the mutex.
void sweep() noexcept {
  for (Fork& fork : g_watch.forks) {
    if (fork.mark.put_up() && !fork.mark.seen()) fork.mark.drop();
  }
}

void before_fork() {
  const int error = errno;
  g_watch.mutex.lock();
  if (g_watch.on) {
    const uint64_t number = g_forks.fetch_add(1, std::memory_order_acq_rel) + 1;
    sweep();
    for (Fork& fork : g_watch.forks) {
      if (fork.mark.put_up()) continue;
      if (fork.mark.put()) {
        fork.number = number;
        g_watch.pending = &fork;
      }
      break;
    }
    if (g_watch.pending == nullptr) g_watch.unrecorded = number;
  }
  errno = error;
}

void in_parent() {  // also of a fork that failed
  const int error = errno;
  if (g_watch.pending != nullptr) g_watch.pending->mark.unmap();
  g_watch.pending = nullptr;
  g_watch.mutex.unlock();
  errno = error;
}

void in_child() {
  // The forks of the child are another table's, and its mark stays mapped for its life.
  for (Fork& fork : g_watch.forks) {
    if (fork.mark.put_up()) fork.mark.drop();
  }
  g_watch.on = false;
  g_watch.unrecorded = 0;
  g_watch.pending = nullptr;
  g_watch.mutex.unlock();
}

struct Hooks {
  Hooks() { pthread_atfork(before_fork, in_parent, in_child); }
};

const Hooks g_hooks;

}  // namespace

void watch_forks() {
  const std::lock_guard lock(g_watch.mutex);
  g_watch.on = true;
}

uint64_t forks_begun() noexcept { return g_forks.load(std::memory_order_acquire); }

bool forked_child_lives(uint64_t after, uint64_t upto) noexcept {
  if (upto <= after) return false;
  const std::lock_guard lock(g_watch.mutex);
  if (!g_watch.on || g_watch.unrecorded > after) return true;
  for (Fork& fork : g_watch.forks) {
    if (!fork.mark.put_up() || fork.number <= after || fork.number > upto) continue;
    if (fork.mark.seen()) return true;
    fork.mark.drop();
  }
  return false;
}

}  // namespace fastloader
