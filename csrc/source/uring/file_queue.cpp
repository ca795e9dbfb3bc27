#include "source/uring/file_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace fastloader {
namespace {

/// Where a file stands.
struct Open {
  int descriptor = -1;  // -1: it is being opened
  size_t size = 0;
};

[[noreturn]] void give_up(int error) {
  // The kernel may still write into memory that this thread would free.
  std::fprintf(stderr, "fastloader: io_uring cannot be waited for: %s\n", std::strerror(error));
  std::abort();
}

}  // namespace

struct FileQueue::Ring {
  io_uring ring{};
  Open open[kDepth];

  /// Never null: each file has one request under way at most, and there is room for kDepth.
  io_uring_sqe* entry_for_one_more() { return io_uring_get_sqe(&ring); }

  /// Asks for the bytes of a file that was opened. Returns false if it is left out.
  bool begin_reading(size_t number, const File& file, size_t most) noexcept {
    struct stat status;
    Open& opened = open[number];
    if (fstat(opened.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (status.st_size <= 0 || static_cast<uint64_t>(status.st_size) > most) return false;
    opened.size = static_cast<size_t>(status.st_size);
    try {
      // Room for one byte more, so that a file that grows is seen.
      file.bytes->resize(opened.size + 1);
    } catch (const std::bad_alloc&) {
      // Nothing may be thrown: the kernel writes into the memory of other files.
      return false;
    }
    io_uring_sqe* const entry = entry_for_one_more();
    io_uring_prep_read(entry, opened.descriptor, file.bytes->data(),
                       static_cast<unsigned>(opened.size + 1), 0);
    io_uring_sqe_set_data(entry, &opened);
    return true;
  }
};

FileQueue::FileQueue() : ring_(std::make_unique<Ring>()) {
  if (io_uring_queue_init(kDepth, &ring_->ring, 0) != 0) ring_.reset();
}

FileQueue::~FileQueue() {
  if (ring_ != nullptr) io_uring_queue_exit(&ring_->ring);
}

bool FileQueue::available() {
  static const bool found = [] {
    const char* wish = std::getenv("FASTLOADER_IO_URING");
    return (wish == nullptr || std::strcmp(wish, "0") != 0) && FileQueue().ring_ != nullptr;
  }();
  return found;
}

bool FileQueue::compiled_in() { return true; }

void FileQueue::read(const std::vector<File>& files, size_t most) {
  if (ring_ == nullptr) return;
  Ring& queue = *ring_;
  for (size_t i = 0; i < files.size(); ++i) {
    queue.open[i] = Open();
    io_uring_sqe* const entry = queue.entry_for_one_more();
    // Without blocking, as FolderSource opens: a pipe that has no writer would never be open.
    io_uring_prep_openat(entry, AT_FDCWD, files[i].path.c_str(),
                         O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    io_uring_sqe_set_data(entry, queue.open + i);
  }
  for (size_t under_way = files.size(); under_way > 0;) {
    const int submitted = io_uring_submit_and_wait(&queue.ring, 1);
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      give_up(-submitted);
    }
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&queue.ring, &done) == 0) {
      auto* const opened = static_cast<Open*>(io_uring_cqe_get_data(done));
      const int result = done->res;
      io_uring_cqe_seen(&queue.ring, done);
      const auto number = static_cast<size_t>(opened - queue.open);
      const File& file = files[number];
      if (opened->descriptor < 0 && result >= 0) {
        opened->descriptor = result;
        if (queue.begin_reading(number, file, most)) continue;
      } else if (opened->descriptor >= 0 && result >= 0 &&
                 static_cast<size_t>(result) == opened->size) {
        file.bytes->resize(opened->size);
        *file.read = true;
      }
      if (opened->descriptor >= 0) close(opened->descriptor);
      --under_way;
    }
  }
}

}  // namespace fastloader
