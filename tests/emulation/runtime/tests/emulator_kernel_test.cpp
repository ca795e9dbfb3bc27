// Kernels run from the text of their .cu file, and one that strays is told by its name.

#include "emulator_test.h"
#include "stray_kernel.h"

namespace fastloader::testing {
namespace {

constexpr size_t kBytes = 100;

/// That a kernel which does this is told. A sanitizer ends the process with a report of its own.
void expect_stray(const char* name, const char* call, void (*body)()) {
  if (is_child_of(name)) {
    body();
    return;
  }
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  const bool told = self.end.exit_code == cuda_emulated::kMisuseExit &&
                    self.said.find(std::string("] ") + call) != std::string::npos;
  const bool sanitizer = self.said.find("Sanitizer") != std::string::npos ||
                         self.said.find("runtime error") != std::string::npos ||
                         (FASTLOADER_TSAN && self.end.signal != 0);
  if (!told && !sanitizer) throw Failure{std::string("not told as ") + call + ": " + self.said};
  EXPECT(self.end.exit_code != 0);
}

#define STRAY_TEST(name, call)                               \
  static void stray_in_##name();                             \
  TEST(name) { expect_stray(#name, call, stray_in_##name); } \
  static void stray_in_##name()

TEST(a_kernel_writes_where_it_is_told) {
  const Clean clean;
  const RawStream stream;
  const RawBlock block(kBytes);
  EXPECT(launch_stray(Stray::kWriteByte, block.data(), 7, stream) == cudaSuccess);
  EXPECT(launch_stray(Stray::kWriteWord, block.data(), 8, stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT_EQ(int{block.real()[6]}, 0xCB);
  EXPECT_EQ(int{block.real()[7]}, 1);
  EXPECT_EQ(int{block.real()[8]}, 1);
  EXPECT_EQ(int{block.real()[11]}, 0);
  EXPECT_EQ(int{block.real()[12]}, 0xCB);
}

TEST(a_kernel_is_loaded_once_on_each_device) {
  const Clean clean;
  const auto loads = [] { return cuda_emulated::counts_by_function()["(kernel load)"]; };
  for (const int device : {0, 1}) {
    cudaSetDevice(device);
    const RawStream stream;
    const RawBlock block(kBytes);
    launch_stray(Stray::kReadByte, block.data(), 0, stream);
    const uint64_t before = loads();
    launch_stray(Stray::kReadByte, block.data(), 0, stream);
    EXPECT_EQ(loads(), before);
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  EXPECT(loads() >= 2);
  EXPECT(cuda_emulated::synchronises("(kernel load)"));
}

STRAY_TEST(a_kernel_writes_far_beyond, "stray_kernel<") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(kBytes);
  launch_stray(Stray::kWriteByte, block.data(), 1000, stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_reads_before_the_block, "stray_kernel<") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(kBytes);
  launch_stray(Stray::kReadByte, block.data(), static_cast<size_t>(-5000), stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_writes_just_beyond, "cudaFree") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(kBytes);
  launch_stray(Stray::kWriteByte, block.data(), kBytes, stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_writes_a_word_at_an_odd_address, "stray_kernel<") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(kBytes);
  launch_stray(Stray::kWriteWord, block.data(), 1, stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_is_given_memory_of_another_device, "stray_kernel<") {
  cudaSetDevice(1);
  const RawBlock block(kBytes);
  cudaSetDevice(0);
  const RawStream stream;
  launch_stray(Stray::kReadByte, block.data(), 0, stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_is_given_memory_of_the_host, "stray_kernel<") {
  cudaSetDevice(0);
  const RawStream stream;
  int number = 0;
  launch_stray(Stray::kReadByte, &number, 0, stream);
  cudaStreamSynchronize(stream);
}

STRAY_TEST(a_kernel_is_launched_on_a_stream_of_another_device, "cudaLaunchKernel") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(kBytes);
  cudaSetDevice(1);
  launch_stray(Stray::kReadByte, block.data(), 0, stream);
}

STRAY_TEST(a_block_is_freed_while_a_kernel_needs_it, "cudaFree") {
  cudaSetDevice(0);
  const RawStream stream;
  RawBlock block(kBytes);
  RawGate gate;
  gate.close(stream);
  launch_stray(Stray::kReadByte, block.data(), 0, stream);
  cudaFree(block.data());
}

TEST(a_kernel_that_strays_breaks_its_device_alone) {
  // Where no sanitizer ends the process.
  const char* name = "a_kernel_that_strays_breaks_its_device_alone";
  if (is_child_of(name)) {
    const cuda_emulated::Tolerance tolerance;
    cudaSetDevice(0);
    cudaStream_t stream = nullptr;
    void* block = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&block, kBytes);
    launch_stray(Stray::kWriteWord, block, 2, stream);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorMisalignedAddress);
    cuda_emulated::repair();
    launch_stray(Stray::kWriteByte, block, 1000, stream);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    EXPECT(cuda_emulated::broken(1) == cudaSuccess);
    std::fprintf(stderr, "both broke it\n");
    return;
  }
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  EXPECT(self.said.find("both broke it") != std::string::npos ||
         self.said.find("Sanitizer") != std::string::npos ||
         self.said.find("runtime error") != std::string::npos || FASTLOADER_TSAN);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
