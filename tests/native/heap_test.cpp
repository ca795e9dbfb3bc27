// The heap of a worker process, which keeps freed memory for the next batches. Each test has a
// process of its own, because malloc's thresholds are the process's.

#include "base/heap.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "check.h"
#include "child_process.h"

// A sanitizer's malloc has no thresholds.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FASTLOADER_GLIBC_HEAP 1
#else
#define FASTLOADER_GLIBC_HEAP 0
#endif

namespace fastloader::testing {
namespace {

constexpr size_t kMega = size_t{1} << 20;
constexpr size_t kBatch = 96 * kMega;

/// Allocates a batch, writes to all of it, frees it. Returns the pages that the system had to give.
long faults_of_a_batch() {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  void* batch = std::malloc(kBatch);
  EXPECT(batch != nullptr);
  std::memset(batch, 1, kBatch);
  EXPECT(peek(static_cast<char*>(batch) + kBatch - 1) == 1);
  std::free(batch);
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

size_t resident_bytes() {
  size_t whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void expect_kept(const KeptHeap&) {
  faults_of_a_batch();
  EXPECT(faults_of_a_batch() < 100);
}

TEST(keeps_the_memory_of_large_batches_and_gives_it_back_after_them) {
  if (!FASTLOADER_GLIBC_HEAP) return;
  const ChildEnd end = in_forked_child([] {
    EXPECT(faults_of_a_batch() > 100);
    EXPECT(faults_of_a_batch() > 100);
    KeptHeap heap;
    heap.keep_for(kBatch);
    expect_kept(heap);
    // Batches of about the same size change nothing.
    heap.keep_for(kBatch + kBatch / 8);
    heap.keep_for(kBatch / 2);
    expect_kept(heap);
    const size_t before = resident_bytes();
    heap.keep_for(kBatch / 8);
    EXPECT(resident_bytes() + kBatch / 2 < before);
    EXPECT(faults_of_a_batch() > 100);
    EXPECT(faults_of_a_batch() > 100);
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(leaves_small_batches_and_what_the_user_has_set_alone) {
  if (!FASTLOADER_GLIBC_HEAP) return;
  const ChildEnd small = in_forked_child([] {
    KeptHeap().keep_for(kMega / 2);
    faults_of_a_batch();
    EXPECT(faults_of_a_batch() > 100);
  });
  EXPECT_EQ(small.exit_code, 0);
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}) {
    const ChildEnd set = in_forked_child([name] {
      setenv(name, "glibc.malloc.trim_threshold=131072", 1);
      KeptHeap().keep_for(kBatch);
      faults_of_a_batch();
      EXPECT(faults_of_a_batch() > 100);
    });
    EXPECT_EQ(set.exit_code, 0);
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
