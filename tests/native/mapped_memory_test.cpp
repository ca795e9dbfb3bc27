// Memory of a mapped file is copied, or refused where the file was cut off, by either way that the
// system has; and it is told from other memory.

#include "base/mapped_memory.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "child_process.h"
#include "mapped_file.h"

namespace fastloader::testing {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kPage = 4096;

Bytes numbered(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 251);
  return bytes;
}

/// Makes a call of the system fail, as the rules of a container do.
void forbid(long call, int error) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, rules};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/// In a child: a mistake there ends in a signal.
template <typename Body>
void in_either_way(Body body) {
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
  const auto by_pipe = [&] {
    forbid(SYS_process_vm_readv, EPERM);
    body();
  };
  EXPECT_EQ(in_forked_child(by_pipe).exit_code, 0);
}

TEST(pieces_are_copied_one_behind_the_other) {
  in_either_way([] {
    const Bytes content = numbered(50 * kPage);
    const MappedFile file(content);
    Bytes out(content.size());
    EXPECT(copy_mapped(out.data(), file.data(), content.size()));
    EXPECT(out == content);
    EXPECT(copy_mapped(out.data(), content.data() + 1, 3000));  // ordinary memory
    EXPECT(Bytes(out.begin(), out.begin() + 3000) ==
           Bytes(content.begin() + 1, content.begin() + 3001));
    std::vector<iovec> pieces;
    Bytes wanted;
    for (size_t i = 0; i < 3000; ++i) {
      const size_t from = i * 7919 % (content.size() - 100);
      const size_t size = i % 50;  // nothing, too
      pieces.push_back({const_cast<uint8_t*>(file.data()) + from, size});
      const auto begin = content.begin() + static_cast<ptrdiff_t>(from);
      wanted.insert(wanted.end(), begin, begin + static_cast<ptrdiff_t>(size));
    }
    out.assign(wanted.size(), 0);
    EXPECT_EQ(copy_mapped_pieces(out.data(), pieces.data(), pieces.size()), wanted.size());
    EXPECT(out == wanted);
    EXPECT(copy_mapped(out.data(), nullptr, 0));
  });
}

TEST(what_was_cut_off_is_not_read) {
  in_either_way([] {
    const Bytes content = numbered(8 * kPage);
    const MappedFile file(content);
    file.cut(3 * kPage + 10);
    Bytes out(content.size());
    EXPECT(copy_mapped(out.data(), file.data(), 4 * kPage));  // the rest of a page is zeros
    EXPECT(!copy_mapped(out.data(), file.data(), 4 * kPage + 1));
    EXPECT(!copy_mapped(out.data(), file.data() + 7 * kPage, 1));
    std::vector<iovec> pieces;
    for (const size_t page : {0, 3, 5, 1}) {
      pieces.push_back({const_cast<uint8_t*>(file.data()) + page * kPage, 100});
    }
    EXPECT_EQ(copy_mapped_pieces(out.data(), pieces.data(), pieces.size()), 200u);
    file.cut(0);
    EXPECT(!copy_mapped(out.data(), file.data(), 1));
  });
}

TEST(a_process_without_descriptors_says_so) {
  const auto body = [] {
    forbid(SYS_process_vm_readv, ENOSYS);
    const Bytes content = numbered(kPage);
    rlimit usual{};
    EXPECT(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const rlimit none{3, usual.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    Bytes out(kPage);
    std::string said;
    try {
      copy_mapped(out.data(), content.data(), kPage);
    } catch (const SourceError& error) {
      // Before the error is looked at: a sanitizer that checks its type takes a pipe for that.
      EXPECT(setrlimit(RLIMIT_NOFILE, &usual) == 0);
      said = error.what();
    }
    EXPECT(said.find("no pipe") != std::string::npos);
  };
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
}

TEST(memory_of_files_is_told_from_other_memory) {
  const auto body = [] {
    const Bytes ordinary = numbered(40 * kPage);
    EXPECT_EQ(mapped_file(ordinary.data(), ordinary.size()), "");
    EXPECT_EQ(mapped_file(nullptr, 0), "");
    for (const char* folder : {"/tmp", "/dev/shm"}) {
      const MappedFile file(ordinary, folder);
      EXPECT_EQ(mapped_file(file.data(), ordinary.size()), file.path());
      EXPECT_EQ(mapped_file(file.data() + 5 * kPage, 1), file.path());
      EXPECT_EQ(mapped_file(file.data() - kPage, kPage), "");
    }
    const auto shared = [](int descriptor) {
      return mmap(nullptr, kPage, PROT_READ,
                  descriptor < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, descriptor, 0);
    };
    const int memory = memfd_create("name", MFD_CLOEXEC);
    EXPECT(ftruncate(memory, kPage) == 0);
    for (const int descriptor : {-1, memory}) {
      EXPECT_EQ(mapped_file(shared(descriptor), kPage), "");
    }
  };
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
  const auto on_an_older_system = [&] {
    forbid(SYS_ioctl, ENOTTY);
    body();
  };
  EXPECT_EQ(in_forked_child(on_an_older_system).exit_code, 0);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
