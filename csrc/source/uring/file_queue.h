#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
    std::vector<uint8_t>* bytes = nullptr;
    bool* read = nullptr;  ///< becomes true when all its bytes are there
  };

  /// As many files as are read side by side.
  static constexpr size_t kDepth = 8;

  /// Whether this build has liburing, and the kernel lets this process use io_uring: containers
  /// often do not. FASTLOADER_IO_URING=0 switches it off.
  static bool available();
  static bool compiled_in();

  FileQueue();
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;
  ~FileQueue();

  /// At most kDepth files, each of at most `most` bytes: larger ones are left out.
  void read(const std::vector<File>& files, size_t most);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;  // null: the system gave none; nothing is read
};

}  // namespace fastloader
