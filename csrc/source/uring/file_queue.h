#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "source/source.h"

namespace fastloader {

/// Reads small files side by side with one thread, by io_uring: a network file system, or a cold
/// disk, answers many questions at a time as fast as one. For one thread.
///
/// Anything but a regular file that can be opened and has as many bytes as its directory entry says
/// is left to FolderSource, which says what is wrong with it. So no rule about files is written
/// twice.
class FileQueue {
 public:
  struct File {
    std::string path;
    Source::Wanted* wanted = nullptr;
  };

  /// As many files as are read side by side.
  static constexpr size_t kDepth = 8;

  /// Whether this build has liburing, and the kernel lets this process use io_uring for files:
  /// containers often do not, and kernels before 5.6 cannot. FASTLOADER_IO_URING=0 switches it off.
  static bool available();
  static bool compiled_in();

  FileQueue();
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;
  ~FileQueue();

  /// At most kDepth files, each of at most `most` bytes: larger ones are left out. A file that the
  /// kernel has at hand has not waited. What the kernel hands to threads of its own counts as
  /// waiting, though it may be at hand: on file systems that cannot be read otherwise, files are
  /// read ahead for longer than there is need.
  void read(const std::vector<File>& files, size_t most, const Source::Told& told);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;  // null: the system gave none, or took it away; nothing is read
};

}  // namespace fastloader
