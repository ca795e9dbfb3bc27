// Device memory is out of the host's reach, begins as rubbish, and is bounded on both sides.

#include <csignal>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

/// That `body` dies of a bad access in a process of its own.
void expect_death(const char* name, void (*body)()) {
  if (is_child_of(name)) {
    for (const int each : {SIGSEGV, SIGBUS}) signal(each, SIG_DFL);  // not the sanitizer's
    body();
    return;
  }
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  EXPECT(self.end.signal == SIGSEGV || self.end.signal == SIGBUS);
}

#define DEATH_TEST(name)                               \
  static void death_in_##name();                       \
  TEST(name) { expect_death(#name, death_in_##name); } \
  static void death_in_##name()

DEATH_TEST(the_host_reads_device_memory) {
  cudaSetDevice(0);
  const RawBlock block(100);
  peek(block.data());
}

DEATH_TEST(a_block_is_read_far_beyond_its_end) {
  cudaSetDevice(0);
  const RawBlock block(100);
  peek(block.real() + 100 + 256);
}

DEATH_TEST(a_block_is_read_far_before_its_begin) {
  cudaSetDevice(0);
  const RawBlock block(100);
  peek(block.real() - 4096);
}

DEATH_TEST(a_block_is_read_after_its_end) {
  cudaSetDevice(0);
  void* block = nullptr;
  cudaMalloc(&block, 100);
  cudaFree(block);
  peek(cuda_emulated::real_address(block));
}

TEST(fresh_memory_is_not_zero) {
  const Clean clean;
  const RawBlock block(5000);
  for (size_t i = 0; i < 5000; ++i) EXPECT_EQ(int{block.real()[i]}, 0xCB);
}

TEST(blocks_are_aligned_and_freed_addresses_do_not_come_again) {
  const Clean clean;
  const void* before = nullptr;
  for (const size_t bytes : {1, 255, 256, 257, 4096, 5000}) {
    const RawBlock block(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 256, uintptr_t{0});
    EXPECT(block.data() != before);
    before = block.data();
  }
}

TEST(a_device_can_be_full) {
  const Clean clean;
  void* block = nullptr;
  EXPECT(cudaMalloc(&block, size_t{1} << 40) == cudaErrorMemoryAllocation);
  EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
}

TEST(what_is_live_is_told) {
  const Clean clean;
  const cuda_emulated::Live before = cuda_emulated::live();
  {
    const RawBlock block(1);
    const RawStream stream;
    const RawEvent event;
    const cuda_emulated::Live now = cuda_emulated::live();
    EXPECT_EQ(now.device_blocks, before.device_blocks + 1);
    EXPECT_EQ(now.streams, before.streams + 1);
    EXPECT_EQ(now.events, before.events + 1);
  }
  EXPECT(cuda_emulated::live() == before);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
