#include "base/mapped_memory.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace fastloader {
namespace {

// Set once by whoever finds it out first; relaxed.
std::atomic<bool> is_forbidden{false};

/// A pipe takes bytes from memory as a file does: the system says which it could not read.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
      throw SourceError(std::string("the system gives no pipe to read a mapped file through: ") +
                        std::strerror(errno));
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }

  /// How many bytes of the piece were copied, 64 KiB at most; 0 if the first cannot be read.
  size_t copy(std::byte* to, const iovec& piece) const {
    const ssize_t taken =
        write(ends_[1], piece.iov_base, std::min(piece.iov_len, size_t{64} << 10));
    size_t got = 0;
    while (taken > 0 && got < static_cast<size_t>(taken)) {
      const ssize_t more = read(ends_[0], to + got, static_cast<size_t>(taken) - got);
      if (more <= 0) break;
      got += static_cast<size_t>(more);
    }
    return got;
  }

 private:
  std::array<int, 2> ends_{};
};

/// The same for many pieces by one call; nothing where that is forbidden, as by a container's
/// rules.
std::optional<size_t> copy_directly(std::byte* to, const iovec* pieces, size_t count) {
  if (is_forbidden.load(std::memory_order_relaxed)) return std::nullopt;
  iovec local{to, 0};
  for (size_t i = 0; i < count; ++i) local.iov_len += pieces[i].iov_len;
  const ssize_t got = process_vm_readv(getpid(), &local, 1, pieces, count, 0);
  if (got >= 0) return static_cast<size_t>(got);
  if (errno == EFAULT) return 0;
  if (errno == EPERM || errno == ENOSYS) is_forbidden.store(true, std::memory_order_relaxed);
  return std::nullopt;
}

// --- what is mapped where ----------------------------------------------------------------------

/// A part of this process's memory with a name.
struct Mapped {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

/// Whether a mapping of this name is one of a file. Devices, and what has only memory below it,
/// have names, too.
bool is_file(std::string_view name) {
  constexpr std::string_view kDeleted = " (deleted)";
  const auto begins = [&](std::string_view with) { return name.substr(0, with.size()) == with; };
  if (!begins("/") || begins("/memfd:") || begins("/SYSV") || begins("/[")) return false;
  if (!begins("/dev/")) return true;
  const bool deleted =
      name.size() > kDeleted.size() && name.substr(name.size() - kDeleted.size()) == kDeleted;
  return begins("/dev/shm/") && !deleted;
}

/// <linux/fs.h> has it from Linux 6.11 on.
struct Query {
  uint64_t size = sizeof(Query);
  uint64_t flags = 0;
  uint64_t address = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t unused[3] = {};
  uint64_t inode = 0;
  uint32_t device[2] = {};
  uint32_t name_size = 0;
  uint32_t build_id_size = 0;
  uint64_t name = 0;
  uint64_t build_id = 0;
};
constexpr unsigned long kQuery = _IOWR('f', 17, Query);
constexpr uint64_t kCoveringOrNext = 0x10;
constexpr uint64_t kFileBacked = 0x20;

class Maps {
 public:
  Maps() : file_(std::fopen("/proc/self/maps", "re")) {}
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;
  ~Maps() {
    if (file_ != nullptr) std::fclose(file_);
  }

  /// The first mapping with a name that ends behind `address`; nothing: there is none, or nothing
  /// is known.
  std::optional<Mapped> next(uint64_t address) {
    if (file_ == nullptr) return std::nullopt;
    Query query;
    query.flags = kCoveringOrNext | kFileBacked;
    query.address = address;
    query.name = reinterpret_cast<uint64_t>(text_.data());
    query.name_size = static_cast<uint32_t>(text_.size());
    if (ioctl(fileno(file_), kQuery, &query) == 0) {
      return Mapped{query.begin, query.end, text_.data()};
    }
    if (errno == ENOENT) return std::nullopt;
    return next_line(address);  // an older system
  }

 private:
  std::optional<Mapped> next_line(uint64_t address) {
    while (std::fgets(text_.data(), static_cast<int>(text_.size()), file_) != nullptr) {
      Mapped found;
      int name = 0;
      if (std::sscanf(text_.data(), "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &found.begin,
                      &found.end, &name) < 2 ||
          found.end <= address || name == 0 || text_[static_cast<size_t>(name)] != '/') {
        continue;
      }
      found.name = std::string(text_.data() + name);
      found.name.erase(found.name.find_last_not_of('\n') + 1);
      return found;
    }
    return std::nullopt;
  }

  std::FILE* const file_;
  std::array<char, 2 * PATH_MAX> text_{};
};

}  // namespace

size_t copy_mapped_pieces(void* to, iovec* pieces, size_t count) {
  auto* const out = static_cast<std::byte*>(to);
  std::optional<Pipe> pipe;
  size_t copied = 0;
  size_t got = 0;
  for (;;) {
    for (; count > 0 && got >= pieces->iov_len; ++pieces, --count) got -= pieces->iov_len;
    if (count == 0) return copied;
    pieces->iov_base = static_cast<std::byte*>(pieces->iov_base) + got;
    pieces->iov_len -= got;
    const std::optional<size_t> directly =
        copy_directly(out + copied, pieces, std::min<size_t>(count, IOV_MAX));
    if (!directly && !pipe) pipe.emplace();
    got = directly ? *directly : pipe->copy(out + copied, *pieces);
    if (got == 0) return copied;
    copied += got;
  }
}

bool copy_mapped(void* to, const void* from, size_t bytes) {
  iovec piece{const_cast<void*>(from), bytes};
  return copy_mapped_pieces(to, &piece, 1) == bytes;
}

std::string mapped_file(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uint64_t>(begin);
  Maps maps;
  for (uint64_t at = first; at < first + bytes;) {
    const std::optional<Mapped> found = maps.next(at);
    if (!found || found->begin >= first + bytes) break;
    if (is_file(found->name)) return found->name;
    at = found->end;
  }
  return {};
}

}  // namespace fastloader
