#include "source/folder_source.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "child_process.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace fastloader {
namespace {

using namespace testing;

constexpr size_t kAll = std::numeric_limits<size_t>::max();

/// A new directory, removed with what the test put there by name.
class Folder {
 public:
  Folder() {
    if (mkdtemp(path_.data()) == nullptr) throw Failure{"no temporary directory"};
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    for (const std::string& path : made_) std::remove(path.c_str());
    std::remove(path_.c_str());
  }

  std::string path(const std::string& name) {
    made_.push_back(path_ + "/" + name);
    return made_.back();
  }
  std::string file(const std::string& name, const std::string& content) {
    std::string full = path(name);
    std::FILE* out = std::fopen(full.c_str(), "wb");
    EXPECT(out != nullptr);
    EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), out), content.size());
    std::fclose(out);
    return full;
  }

 private:
  std::string path_ = "/tmp/folder_source_test.XXXXXX";
  std::vector<std::string> made_;
};

/// A source and the arrays it looks at.
struct Files {
  explicit Files(const std::vector<std::string>& all) {
    for (const std::string& path : all) {
      paths += path;
      ends.push_back(paths.size());
    }
    source = std::make_unique<FolderSource>(paths.data(), paths.size(), ends.data(), ends.size());
  }

  std::string read(uint64_t index) {
    source->read(index, bytes);
    return {bytes.begin(), bytes.end()};
  }

  std::string paths;
  std::vector<uint64_t> ends;
  std::unique_ptr<FolderSource> source;
  std::vector<uint8_t> bytes;
};

std::string noise(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(i * 31 + i / 255);
  return text;
}

TEST(files_are_read_whole_whatever_was_there_before) {
  Folder folder;
  std::vector<std::string> contents;
  std::vector<std::string> paths;
  for (const size_t size : {5000, 0, 1, 70000, 4096, 4095, 4097, 300000, 2, 65536}) {
    contents.push_back(noise(size));
    paths.push_back(folder.file("file " + std::to_string(size), contents.back()));
  }
  Files files(paths);
  EXPECT_EQ(files.source->size(), paths.size());
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < paths.size(); ++i) {
      EXPECT(files.read(i) == contents[i]);
      EXPECT_EQ(files.source->name(i), paths[i]);
    }
  }
}

TEST(of_a_file_that_is_not_wanted_only_the_beginning_is_read) {
  Folder folder;
  const std::string large = noise(5000000);
  Files files({folder.file("small", large.substr(0, 1000)), folder.file("large", large)});
  const auto wanted = [](const uint8_t*, size_t) { return true; };
  const auto unwanted = [](const uint8_t*, size_t) { return false; };
  for (const size_t index : {0, 1}) {
    EXPECT(files.source->read_if(index, files.bytes, wanted, kAll));
    EXPECT(std::string(files.bytes.begin(), files.bytes.end()) == files.read(index));
  }
  std::vector<uint8_t> bytes;
  EXPECT(files.source->read_if(1, bytes, unwanted, kAll));
  const std::string got(bytes.begin(), bytes.end());
  EXPECT(!got.empty() && got == large.substr(0, got.size()));
  EXPECT(bytes.capacity() <= size_t{256} << 10);
  EXPECT(files.source->read_if(0, bytes, unwanted, kAll));
  EXPECT(bytes.size() <= 1000);
}

TEST(a_file_that_is_larger_than_the_caller_likes_is_not_read) {
  Folder folder;
  const std::string content = noise(70000);
  Files files({folder.file("file", content)});
  std::vector<uint8_t> bytes;
  EXPECT(!files.source->read_if(0, bytes, nullptr, content.size() - 1));
  EXPECT(bytes.empty());
  EXPECT(files.source->read_if(0, bytes, nullptr, content.size()));
  EXPECT(std::string(bytes.begin(), bytes.end()) == content);
  // The system does not say how much this has.
  Files endless({"/proc/kallsyms"});
  const bool readable = endless.read(0).size() > 10;
  if (readable) EXPECT(!endless.source->read_if(0, bytes, nullptr, 10));
}

TEST(files_are_read_side_by_side_and_what_is_odd_is_left) {
  Folder folder;
  std::vector<std::string> contents;
  std::vector<std::string> paths;
  for (size_t i = 0; i < 21; ++i) {
    contents.push_back(noise(1 + i * i * 700));
    paths.push_back(folder.file("file " + std::to_string(i), contents.back()));
  }
  const std::string pipe = folder.path("pipe");
  EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const size_t regular = paths.size();
  // Of the file below /sys, the system says that it has 4096 bytes.
  for (const std::string& odd :
       {folder.path("nowhere"), std::string("/"), pipe, std::string("/dev/zero"),
        std::string("/proc/self/status"), std::string("/sys/devices/system/cpu/online"),
        folder.file("empty", "")}) {
    paths.push_back(odd);
  }
  paths.push_back(folder.file("large", noise(200001)));
  Files files(paths);
  if (files.source->together() == 1) {
    std::vector<Source::Wanted> wanted(1);
    files.source->read_together(wanted, kAll, [](Source::Wanted&) { EXPECT(false); });
    EXPECT(!wanted[0].read);
    throw Skip{"no io_uring here"};
  }
  std::vector<Source::Wanted> wanted(paths.size());
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i].index = paths.size() - 1 - i;
  for (int round = 0; round < 3; ++round) {
    for (Source::Wanted& each : wanted) each.read = false;
    std::set<uint64_t> told;
    files.source->read_together(wanted, 200000, [&](Source::Wanted& each) {
      EXPECT(each.read);
      EXPECT(told.insert(each.index).second);
    });
    for (const Source::Wanted& each : wanted) {
      const bool odd = each.index >= regular || contents[each.index].size() > 200000;
      EXPECT_EQ(each.read, !odd);
      EXPECT_EQ(told.count(each.index) == 1, !odd);
      if (round > 0) EXPECT(!each.waited);  // the page cache has it
      if (odd) continue;
      EXPECT(std::string(each.bytes.begin(), each.bytes.end()) == contents[each.index]);
    }
  }
}

TEST(the_room_for_the_largest_file_is_kept) {
  Folder folder;
  Files files({folder.file("a", noise(1000)), folder.file("b", noise(100000)),
               folder.file("c", noise(99999))});
  EXPECT_EQ(files.read(1).size(), 100000u);
  const uint8_t* const memory = files.bytes.data();
  for (const uint64_t index : {0, 2, 1, 0, 1}) {
    const size_t before = allocations;
    files.source->read(index, files.bytes);
    EXPECT(files.bytes.data() == memory);
    EXPECT(allocations - before <= 1);  // the path
  }
}

TEST(any_byte_may_stand_in_a_path) {
  Folder folder;
  const std::vector<std::string> names = {
      "new\nline", "\xff\xfe\x80", "\xc3\xa4 \xe6\x97\xa5", " ", "%s%n",
      "-rf",       "a\"b'c\\d",    std::string(200, 'x')};
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(folder.file(name, "in " + name));
  Files files(paths);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT(files.source->name(i) == paths[i]);
    EXPECT(files.read(i) == "in " + names[i]);
  }
}

TEST(what_cannot_be_read_is_named_with_the_reason) {
  Folder folder;
  const std::string missing = folder.path("missing.jpg");
  const std::string directory = folder.path("directory.jpg");
  EXPECT(mkdir(directory.c_str(), 0700) == 0);
  const std::string loop = folder.path("loop.jpg");
  EXPECT(symlink(loop.c_str(), loop.c_str()) == 0);
  const std::string good = folder.file("good.jpg", "good");
  Files files({missing, directory, loop, good + "/below.jpg", std::string(5000, 'x'), "", good});
  const auto refused = [&](uint64_t index, const char* reason) {
    EXPECT_THROW(files.read(index), SourceError, reason);
    EXPECT_THROW(files.read(index), SourceError, "cannot read " + files.source->name(index));
    EXPECT_EQ(files.read(6), "good");
  };
  refused(0, "No such file or directory");
  refused(1, "Is a directory");
  refused(2, "symbolic links");
  refused(3, "Not a directory");
  refused(4, "File name too long");
  refused(5, "No such file or directory");
}

TEST(a_file_that_may_not_be_opened_or_fails_in_the_middle) {
  Folder folder;
  const std::string locked = folder.file("locked.jpg", "secret");
  EXPECT(chmod(locked.c_str(), 0) == 0);
  Files files({locked, "/proc/self/mem"});  // nothing is mapped at address 0 of the latter
  const ChildEnd end = in_forked_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(1);  // root may read everything
    EXPECT_THROW(files.read(0), SourceError, "Permission denied");
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THROW(files.read(1), SourceError, "Input/output error");
}

TEST(a_path_with_a_zero_byte_is_not_another_file) {
  Folder folder;
  const std::string good = folder.file("good", "good");
  Files files({good + std::string(1, '\0') + ".jpg", good});
  EXPECT_THROW(files.read(0), SourceError, "/good: a zero byte");
  EXPECT_EQ(files.read(1), "good");
}

TEST(pipes_and_devices_are_refused_without_waiting_for_them) {
  Folder folder;
  const std::string pipe = folder.path("pipe.jpg");
  EXPECT(mkfifo(pipe.c_str(), 0600) == 0);
  Files files({pipe, "/dev/zero", "/dev/null"});
  for (uint64_t i = 0; i < 3; ++i) EXPECT_THROW(files.read(i), SourceError, "not a regular file");
}

/// /proc tells a size of 0 for everything: all of it has grown since. Many mappings make a long
/// one.
TEST(a_file_that_is_longer_than_it_said_is_read_to_its_end) {
  constexpr size_t kPages = 6000;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped = mmap(nullptr, kPages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(mapped != MAP_FAILED);
  for (size_t i = 0; i < kPages; i += 2) {
    EXPECT(mprotect(static_cast<char*>(mapped) + i * page, page, PROT_READ) == 0);
  }
  Files files({"/proc/self/maps", "/proc/self/comm"});
  const std::string maps = files.read(0);
  EXPECT(munmap(mapped, kPages * page) == 0);
  EXPECT(maps.size() > 250000);
  EXPECT(maps.back() == '\n');
  size_t lines = 0;
  for (const char c : maps) lines += c == '\n' ? 1 : 0;
  EXPECT(lines > kPages);
  EXPECT_EQ(files.read(1), "folder_source_t\n");
}

TEST(paths_out_of_order_are_refused) {
  const std::string paths = "abcdef";
  const auto refused = [&](std::vector<uint64_t> ends, const char* part) {
    EXPECT_THROW(FolderSource(paths.data(), paths.size(), ends.data(), ends.size()),
                 InvalidArgument, part);
  };
  refused({7}, "at file 0");
  refused({2, 1}, "at file 1");
  refused({1, 2, 3, 7}, "at file 3");
  refused({1, UINT64_MAX}, "at file 1");
  const FolderSource none(nullptr, 0, nullptr, 0);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_THROW(none.name(0), InvalidArgument, "file 0 of 0");
  const Files files({"a", "", "b"});
  EXPECT_EQ(files.source->name(1), "");
  EXPECT_EQ(files.source->name(2), "b");
  std::vector<uint8_t> bytes;
  EXPECT_THROW(files.source->read(3, bytes), InvalidArgument, "file 3 of 3");
  EXPECT_THROW(files.source->read(UINT64_MAX, bytes), InvalidArgument, "of 3");
}

TEST(a_million_files_cost_their_paths_and_eight_bytes_each) {
  constexpr uint64_t kCount = 1000000;
  std::string paths;
  std::vector<uint64_t> ends;
  for (uint64_t i = 0; i < kCount; ++i) {
    paths += std::to_string(i);
    ends.push_back(paths.size());
  }
  const size_t before = allocations;
  const FolderSource source(paths.data(), paths.size(), ends.data(), kCount);
  EXPECT_EQ(allocations.load(), before);  // it looks at the caller's arrays
  for (const uint64_t i : {uint64_t{0}, uint64_t{9}, uint64_t{10}, uint64_t{123456}, kCount - 1}) {
    EXPECT_EQ(source.name(i), std::to_string(i));
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
