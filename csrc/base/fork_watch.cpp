#include "base/fork_watch.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <utility>

#include "base/descriptor.h"

namespace fastloader {
namespace {

constexpr size_t kMark = 1;  // bytes; never touched, so that they cost no memory

/// Tells whether a process still has the memory of one fork. It is a page of shared memory that the
/// parent maps before the fork and unmaps after it. The child inherits the mapping, and the child's
/// children inherit it in turn. A process that ends or calls exec has it no longer, and neither has
/// a child that was never made. The system refuses to seal the page against writing as long as a
/// process could write to it.
///
/// Not the child's pid: the parent cannot know it, the child cannot tell that it is about to call
/// exec, and numbers come again. Not the end of a pipe: daemons close what they inherited.
class Mark {
 public:
  /// Before the fork. False: the system has no descriptor or no memory for it.
  bool put() noexcept {
    fd_ = Descriptor(static_cast<int>(
        syscall(SYS_memfd_create, "fastloader-fork", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (fd_ && ftruncate(fd_.number(), kMark) == 0 && map()) return true;
    drop();
    return false;
  }
  /// Before another fork, which then shares it.
  bool map() noexcept {
    void* data = mmap(nullptr, kMark, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.number(), 0);
    if (data != MAP_FAILED) data_ = data;
    return data != MAP_FAILED;
  }
  /// After it, in the parent.
  void unmap() noexcept { munmap(std::exchange(data_, nullptr), kMark); }
  /// Forgets the mark.
  void drop() noexcept { fd_ = Descriptor(); }

  bool put_up() const noexcept { return static_cast<bool>(fd_); }
  /// False: other code has closed the descriptor, and nothing can tell any more.
  bool kept() const noexcept { return fd_.is_kept(); }
  bool seen() const noexcept { return fcntl(fd_.number(), F_ADD_SEALS, F_SEAL_WRITE) != 0; }

 private:
  Descriptor fd_;
  void* data_ = nullptr;
};

/// Forks of consecutive numbers.
struct Range {
  uint64_t first = 0;
  uint64_t last = 0;  // none when 0

  bool overlaps(uint64_t after, uint64_t upto) const noexcept {
    return last > after && first <= upto;
  }
  void extend_by(const Range& other) noexcept {
    first = last == 0 ? other.first : std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

/// Usually one. More share a mark when there are as many marks as there may be.
struct Forks {
  Range numbers;
  Mark mark;
};

/// Marks at a time, at most; fewer where the process may have few descriptors.
constexpr size_t kMarks = 1024;
constexpr size_t kOfDescriptors = 8;

size_t most_marks() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  return static_cast<size_t>(std::clamp<rlim_t>(limit.rlim_cur / kOfDescriptors, 1, kMarks));
}

struct Watch {
  std::mutex mutex;  // guards what follows; held over a fork, so that the child finds it in order
  bool on = false;
  std::array<Forks, kMarks> marked;
  Range unknown;             // forks without a mark: their children count as living for ever
  Forks* pending = nullptr;  // from one handler of a fork to the next
};

// Never destroyed: memory is freed and processes are forked while the program exits, too.
Watch& g_watch = *new Watch;
// Partner: any thread that frees memory. Acquire and release order it with the fork that follows.
std::atomic<uint64_t> g_forks{0};

/// Whether a process has the memory of these forks; they are forgotten if not. Under the mutex.
bool are_seen(Forks& forks) noexcept {
  const bool kept = forks.mark.kept();
  if (!kept) g_watch.unknown.extend_by(forks.numbers);
  if (kept && forks.mark.seen()) return true;
  forks.mark.drop();
  return !kept;
}

/// Forgets the forks whose memory no process has. Under the mutex.
void sweep() noexcept {
  for (Forks& forks : g_watch.marked) {
    if (forks.mark.put_up()) (void)are_seen(forks);
  }
}

/// A mark for the next fork; null if the system has none. Under the mutex.
Forks* mark(uint64_t number) noexcept {
  Forks* unused = nullptr;
  Forks* newest = nullptr;
  size_t marks = 0;
  for (Forks& forks : g_watch.marked) {
    if (!forks.mark.put_up()) {
      if (unused == nullptr) unused = &forks;
      continue;
    }
    ++marks;
    if (newest == nullptr || forks.numbers.last > newest->numbers.last) newest = &forks;
  }
  if (unused != nullptr && marks < most_marks() && unused->mark.put()) {
    unused->numbers = {number, number};
    return unused;
  }
  // Its child counts as alive as long as one of theirs is, too, which is the safe side.
  if (newest == nullptr || !newest->mark.map()) return nullptr;
  newest->numbers.last = number;
  return newest;
}

void before_fork() {
  const int error = errno;
  g_watch.mutex.lock();
  if (g_watch.on) {
    const uint64_t number = g_forks.fetch_add(1, std::memory_order_acq_rel) + 1;
    sweep();
    g_watch.pending = mark(number);
    if (g_watch.pending == nullptr) g_watch.unknown.extend_by({number, number});
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
  for (Forks& forks : g_watch.marked) {
    if (forks.mark.put_up()) forks.mark.drop();
  }
  g_watch.on = false;
  g_watch.unknown = {};
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
  if (!g_watch.on || g_watch.unknown.overlaps(after, upto)) return true;
  for (Forks& forks : g_watch.marked) {
    if (!forks.mark.put_up() || !forks.numbers.overlaps(after, upto)) continue;
    if (are_seen(forks)) return true;
  }
  return false;
}

}  // namespace fastloader
