#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

namespace fastloader::testing {

/// A file of these bytes, mapped as programs map theirs, which can be cut off.
class MappedFile {
 public:
  explicit MappedFile(const std::vector<uint8_t>& content, const char* folder = "/tmp")
      : path_(std::string(folder) + "/fastloader-mapped-XXXXXX"), size_(content.size()) {
    descriptor_ = mkstemp(path_.data());
    EXPECT(descriptor_ >= 0);
    EXPECT_EQ(write(descriptor_, content.data(), size_), static_cast<ssize_t>(size_));
    data_ = static_cast<uint8_t*>(mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0));
    EXPECT(data_ != MAP_FAILED);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    munmap(data_, size_);
    close(descriptor_);
    unlink(path_.c_str());
  }

  void cut(size_t size) const { EXPECT(ftruncate(descriptor_, static_cast<off_t>(size)) == 0); }
  const uint8_t* data() const { return data_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  size_t size_;
  int descriptor_ = -1;
  uint8_t* data_ = nullptr;
};

}  // namespace fastloader::testing
