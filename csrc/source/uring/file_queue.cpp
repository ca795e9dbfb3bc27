#include "source/uring/file_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/descriptor.h"

namespace fastloader {

struct FileQueue::Ring {
  /// Where a file stands.
  struct Open {
    int descriptor = -1;  // -1: it is being opened
    size_t size = 0;
    bool under_way = false;
    bool waited = false;
  };

  io_uring ring{};
  Descriptor descriptor;  // the ring's
  Open open[kDepth];
  size_t asked = 0;   // requests that the kernel has and has not answered
  bool lost = false;  // whether the kernel takes no more: other code has closed the descriptor

  bool begin() {
    if (io_uring_queue_init(kDepth, &ring, 0) != 0) return false;
    descriptor = Descriptor(ring.ring_fd);
    return true;
  }

  /// To be called when nothing is under way.
  ~Ring() {
    if (!descriptor) return;
    ring.ring_fd = -1;  // which would be closed, whosever it is by now
    io_uring_queue_exit(&ring);
  }

  /// Never null: each file has one request under way at most, and there is room for kDepth.
  io_uring_sqe* entry() { return io_uring_get_sqe(&ring); }

  void begin_opening(size_t number, const File& file) {
    open[number] = Open();
    open[number].under_way = true;
    io_uring_sqe* const request = entry();
    // Without blocking, as FolderSource opens: a pipe that has no writer would never be open.
    io_uring_prep_openat(request, AT_FDCWD, file.path.c_str(),
                         O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    io_uring_sqe_set_data(request, open + number);
  }

  /// Asks for the bytes of a file that was opened. Returns false if it is left out.
  bool begin_reading(Open& opened, const File& file, size_t most) noexcept {
    struct stat status;
    if (fstat(opened.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (status.st_size <= 0 || static_cast<uint64_t>(status.st_size) > most) return false;
    // Kernels before 5.15 do not wait for a file that was opened without blocking.
    if (fcntl(opened.descriptor, F_SETFL, 0) != 0) return false;
    opened.size = static_cast<size_t>(status.st_size);
    try {
      // Room for one byte more, so that a file that grows is seen.
      file.wanted->bytes.resize(opened.size + 1);
    } catch (const std::exception&) {
      // Nothing may be thrown: the kernel writes into the memory of other files.
      return false;
    }
    io_uring_sqe* const request = entry();
    io_uring_prep_read(request, opened.descriptor, file.wanted->bytes.data(),
                       static_cast<unsigned>(opened.size + 1), 0);
    io_uring_sqe_set_data(request, &opened);
    return true;
  }

  void leave(Open& opened) {
    if (opened.descriptor >= 0) close(opened.descriptor);
    opened = Open();
  }

  /// Hands requests to the kernel, and waits for an answer if it is to. Returns false if the kernel
  /// takes no more, and has none: then nothing is under way.
  bool submit(bool wait) {
    if (lost) {
      // The answers come all the same, into memory that is still mapped.
      sched_yield();
      return asked > 0;
    }
    const unsigned ready = io_uring_sq_ready(&ring);
    const int taken = wait ? io_uring_submit_and_wait(&ring, 1) : io_uring_submit(&ring);
    if (taken == 0 && ready > 0) {  // the number is that of a ring of other code by now
      lost = true;
      return asked > 0;
    }
    if (taken >= 0) {
      asked += static_cast<size_t>(taken);
      return true;
    }
    if (taken == -EINTR) return true;
    if (taken == -EAGAIN || taken == -EBUSY) {
      sched_yield();
      return true;
    }
    lost = true;
    return asked > 0;
  }

  /// Takes the answers that are there. Returns how many files are done, read or not.
  size_t take(const std::vector<File>& files, size_t most, const Source::Told& told) {
    size_t done = 0;
    io_uring_cqe* answer = nullptr;
    while (io_uring_peek_cqe(&ring, &answer) == 0) {
      Open& opened = *static_cast<Open*>(io_uring_cqe_get_data(answer));
      const int result = answer->res;
      io_uring_cqe_seen(&ring, answer);
      --asked;
      const File& file = files[static_cast<size_t>(&opened - open)];
      if (opened.descriptor < 0 && result >= 0) {
        opened.descriptor = result;
        if (begin_reading(opened, file, most)) continue;
      } else if (opened.descriptor >= 0 && result >= 0 &&
                 static_cast<size_t>(result) == opened.size) {
        file.wanted->bytes.resize(opened.size);
        file.wanted->read = true;
        file.wanted->waited = opened.waited;
      }
      leave(opened);
      ++done;
      if (file.wanted->read) told(*file.wanted);
    }
    return done;
  }
};

FileQueue::FileQueue() : ring_(std::make_unique<Ring>()) {
  if (!ring_->begin()) ring_.reset();
}

FileQueue::~FileQueue() = default;

bool FileQueue::available() {
  // Not a static local: a child could inherit its guard locked by a thread that it does not have.
  // Partner: itself; relaxed, since nothing but the answer is published.
  static std::atomic<int> known{-1};
  int found = known.load(std::memory_order_relaxed);
  if (found >= 0) return found == 1;
  const char* wish = std::getenv("FASTLOADER_IO_URING");
  found = 0;
  if (wish == nullptr || std::strcmp(wish, "0") != 0) {
    if (io_uring_probe* const probe = io_uring_get_probe()) {
      found = io_uring_opcode_supported(probe, IORING_OP_OPENAT) != 0 &&
              io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
      io_uring_free_probe(probe);
    }
  }
  known.store(found, std::memory_order_relaxed);
  return found == 1;
}

bool FileQueue::compiled_in() { return true; }

void FileQueue::read(const std::vector<File>& files, size_t most, const Source::Told& told) {
  if (ring_ == nullptr) return;
  if (!ring_->descriptor.is_kept()) {
    ring_ = std::make_unique<Ring>();
    if (!ring_->begin()) ring_.reset();
    if (ring_ == nullptr) return;
  }
  for (size_t i = 0; i < files.size(); ++i) ring_->begin_opening(i, files[i]);
  bool wait = false;
  for (size_t left = files.size(); left > 0;) {
    if (!ring_->submit(wait)) {
      for (size_t i = 0; i < files.size(); ++i) ring_->leave(ring_->open[i]);
      ring_.reset();
      return;
    }
    const size_t asked = ring_->asked;
    left -= ring_->take(files, most, told);
    wait = ring_->asked == asked && io_uring_sq_ready(&ring_->ring) == 0;
    if (!wait) continue;
    for (Ring::Open& opened : ring_->open) opened.waited |= opened.under_way;
  }
}

}  // namespace fastloader
