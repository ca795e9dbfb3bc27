#include "source/folder_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "source/uring/file_queue.h"

namespace fastloader {
namespace {

class File {
 public:
  /// Opens without blocking: opening a pipe that has no writer would otherwise never return. Files
  /// read the same either way.
  explicit File(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

[[noreturn]] void fail(const std::string& path, const char* reason) {
  throw SourceError("cannot read " + path + ": " + reason);
}

[[noreturn]] void fail(const std::string& path, int reason) { fail(path, std::strerror(reason)); }

constexpr size_t kLeastGrowth = size_t{64} << 10;

/// Bytes that are read before `look` is asked. Most pictures are smaller: one system call.
constexpr size_t kBeginning = size_t{256} << 10;

}  // namespace

FolderSource::FolderSource(const char* paths, uint64_t path_bytes, const uint64_t* ends,
                           uint64_t count)
    : paths_(paths), ends_(ends), count_(count) {
  uint64_t before = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (ends[i] < before || ends[i] > path_bytes) {
      throw InvalidArgument("the paths of a folder source are out of order at file " +
                            std::to_string(i));
    }
    before = ends[i];
  }
}

std::string FolderSource::name(uint64_t index) const {
  if (index >= count_) {
    throw InvalidArgument("file " + std::to_string(index) + " of " + std::to_string(count_));
  }
  const uint64_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::string(paths_ + begin, ends_[index] - begin);
}

size_t FolderSource::together() const { return FileQueue::available() ? FileQueue::kDepth : 1; }

void FolderSource::read_together(std::vector<Wanted>& wanted, size_t most, const Told& told) const {
  if (!FileQueue::available()) return;
  static thread_local FileQueue queue;
  for (size_t begin = 0; begin < wanted.size(); begin += FileQueue::kDepth) {
    const size_t end = std::min(wanted.size(), begin + FileQueue::kDepth);
    std::vector<FileQueue::File> files;
    for (size_t i = begin; i < end; ++i) {
      std::string path = name(wanted[i].index);
      if (path.find('\0') == std::string::npos) files.push_back({std::move(path), &wanted[i]});
    }
    queue.read(files, most, told);
  }
}

bool FolderSource::read_if(uint64_t index, std::vector<uint8_t>& bytes, Look look,
                           size_t most) const {
  const std::string path = name(index);
  // The system, and a message, would take what stands before it for the path.
  if (path.find('\0') != std::string::npos) fail(path.c_str(), "a zero byte in the path");
  const File file(path);
  if (file.get() < 0) fail(path, errno);
  struct stat status;
  if (fstat(file.get(), &status) != 0) fail(path, errno);
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  // A pipe or a device may have nothing to say, or no end, or something else at each epoch.
  if (!S_ISREG(status.st_mode)) fail(path, "not a regular file");
  if (static_cast<uint64_t>(status.st_size) > kLargestSample) fail(path, "more than 1 GiB");
  if (static_cast<size_t>(status.st_size) > most) return false;
  // Room for one byte more than there should be, so that the end is seen without making room again.
  const size_t whole = static_cast<size_t>(status.st_size) + 1;
  bytes.resize(look == nullptr ? whole : std::min(whole, kBeginning));
  size_t got = 0;
  for (;;) {
    if (look != nullptr && got == bytes.size()) {
      if (!look(bytes.data(), got)) break;
      look = nullptr;
      bytes.resize(std::max(whole, got));
    }
    // The file is growing, or of a file system that does not tell sizes.
    if (got == bytes.size()) bytes.resize(got + std::max(got, kLeastGrowth));
    const ssize_t more = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail(path, errno);
    if (more == 0) break;
    got += static_cast<size_t>(more);
    if (got > most) return false;
  }
  bytes.resize(got);
  return true;
}

}  // namespace fastloader
