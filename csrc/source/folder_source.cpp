#include "source/folder_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fastloader {
namespace {

class File {
 public:
  explicit File(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

[[noreturn]] void fail(const std::string& path, int reason) {
  throw SourceError("cannot read " + path + ": " + std::strerror(reason));
}

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

void FolderSource::read(uint64_t index, std::vector<uint8_t>& bytes) const {
  const std::string path = name(index);
  const File file(path);
  if (file.get() < 0) fail(path, errno);
  struct stat status;
  if (fstat(file.get(), &status) != 0) fail(path, errno);
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  bytes.resize(static_cast<size_t>(status.st_size));
  size_t got = 0;
  for (;;) {
    // One byte more than the size that was told: a file may be growing, or be a pipe.
    if (got == bytes.size()) bytes.resize(got + 1);
    const ssize_t more = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail(path, errno);
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  bytes.resize(got);
}

}  // namespace fastloader
