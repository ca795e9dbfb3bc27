// What no CUDA program may do ends a strict process with the call's name.

#include <sys/mman.h>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

constexpr size_t kPage = 4096;

char* pages(size_t count) {
  void* data =
      mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(data != MAP_FAILED);
  return static_cast<char*>(data);
}

MISUSE_TEST(a_stream_is_used_after_its_end, "cudaEventRecord") {
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const RawEvent event;
  cudaStreamDestroy(stream);
  cudaEventRecord(event, stream);
}

MISUSE_TEST(an_event_is_used_after_its_end, "cudaEventQuery") {
  cudaSetDevice(0);
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventDestroy(event);
  cudaEventQuery(event);
}

MISUSE_TEST(a_stream_is_destroyed_twice, "cudaStreamDestroy") {
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(stream);
}

MISUSE_TEST(a_block_is_freed_twice, "cudaFree") {
  void* block = nullptr;
  cudaSetDevice(0);
  cudaMalloc(&block, 100);
  cudaFree(block);
  cudaFree(block);
}

MISUSE_TEST(a_block_is_freed_while_a_copy_needs_it, "cudaFree") {
  cudaSetDevice(0);
  const RawStream stream;
  void* block = nullptr;
  cudaMalloc(&block, 100);
  RawGate gate;
  gate.close(stream);
  cudaMemcpyAsync(block, static_cast<char*>(block) + 50, 50, cudaMemcpyDeviceToDevice, stream);
  cudaFree(block);
}

MISUSE_TEST(pages_are_unregistered_while_a_copy_needs_them, "cudaHostUnregister") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(100);
  char* host = pages(1);
  cudaHostRegister(host, kPage, cudaHostRegisterDefault);
  RawGate gate;
  gate.close(stream);
  cudaMemcpyAsync(block.data(), host, 100, cudaMemcpyHostToDevice, stream);
  cudaHostUnregister(host);
}

MISUSE_TEST(pages_are_unregistered_that_never_were, "cudaHostUnregister") {
  cudaSetDevice(0);
  cudaHostUnregister(pages(1));
}

MISUSE_TEST(pages_are_unmapped_before_they_are_unregistered, "cudaHostUnregister") {
  cudaSetDevice(0);
  // Between two pages that stay: what another thread maps meanwhile does not fit there.
  char* host = pages(3) + kPage;
  cudaHostRegister(host, kPage, cudaHostRegisterDefault);
  munmap(host, kPage);
  pages(2);
  cudaHostUnregister(host);
}

MISUSE_TEST(pages_are_registered_twice, "cudaHostRegister") {
  cudaSetDevice(0);
  char* host = pages(2);
  cudaHostRegister(host, 2 * kPage, cudaHostRegisterDefault);
  cudaHostRegister(host + kPage, kPage, cudaHostRegisterDefault);
}

MISUSE_TEST(a_copy_leaves_the_block, "cudaMemcpyAsync") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(100);
  const RawBlock large(1000);
  cudaMemcpyAsync(block.data() + 1, large.data(), 100, cudaMemcpyDeviceToDevice, stream);
}

MISUSE_TEST(a_copy_reads_a_block_that_was_freed, "cudaMemcpyAsync") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(100);
  void* freed = nullptr;
  cudaMalloc(&freed, 100);
  cudaFree(freed);
  cudaMemcpyAsync(block.data(), freed, 100, cudaMemcpyDeviceToDevice, stream);
}

MISUSE_TEST(a_copy_reads_pages_that_are_pinned_in_part, "cudaMemcpyAsync") {
  cudaSetDevice(0);
  const RawStream stream;
  const RawBlock block(2 * kPage);
  char* host = pages(2);
  cudaHostRegister(host, kPage, cudaHostRegisterDefault);
  cudaMemcpyAsync(block.data(), host, 2 * kPage, cudaMemcpyHostToDevice, stream);
}

MISUSE_TEST(an_event_is_recorded_on_a_stream_of_another_device, "cudaEventRecord") {
  cudaSetDevice(0);
  const RawStream stream;
  cudaSetDevice(1);
  const RawEvent event;
  cudaEventRecord(event, stream);
}

MISUSE_TEST(a_host_function_calls_cuda, "cudaGetDeviceCount") {
  cudaSetDevice(0);
  const RawStream stream;
  cudaLaunchHostFunc(
      stream,
      [](void*) {
        int count = 0;
        cudaGetDeviceCount(&count);
      },
      nullptr);
  cudaStreamSynchronize(stream);
}

MISUSE_TEST(a_captured_stream_is_destroyed, "cudaStreamDestroy") {
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaStreamDestroy(stream);
}

MISUSE_TEST(a_context_is_none, "cuCtxSetCurrent") {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cudaGetDriverEntryPointByVersion("cuCtxSetCurrent", &function, 4000, cudaEnableDefault, &result);
  int number = 0;
  reinterpret_cast<int (*)(void*)>(function)(&number);
}

MISUSE_TEST(a_forked_child_calls_cuda, "cudaSetDevice") {
  cudaSetDevice(0);
  const pid_t child = fork();
  if (child == 0) {
    const cuda_emulated::Tolerance tolerance;  // the parent tells
    cudaSetDevice(0);
    _exit(0);
  }
  wait_for_child(child);
}

TEST(what_is_left_at_the_end_fails_a_strict_process) {
  const char* name = "what_is_left_at_the_end_fails_a_strict_process";
  if (is_child_of(name)) {
    cudaSetDevice(0);
    void* block = nullptr;
    EXPECT(cudaMalloc(&block, 100) == cudaSuccess);
    return;
  }
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  EXPECT_EQ(self.end.exit_code, cuda_emulated::kMisuseExit);
  EXPECT(self.said.find("1 device blocks") != std::string::npos);
}

TEST(what_is_left_on_purpose_is_told_and_fails_nothing) {
  const char* name = "what_is_left_on_purpose_is_told_and_fails_nothing";
  if (is_child_of(name)) {
    cuda_emulated::leave_on_purpose();
    cudaSetDevice(0);
    cudaStream_t stream = nullptr;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return;
  }
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  EXPECT_EQ(self.end.exit_code, 0);
  EXPECT(self.said.find("1 streams") != std::string::npos);
}

TEST(a_tolerated_misuse_is_kept) {
  const Clean clean;
  const cuda_emulated::Tolerance tolerance;
  int number = 0;
  EXPECT(cudaHostUnregister(&number) == cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cuda_emulated::misuses().size(), size_t{1});
  EXPECT_EQ(cuda_emulated::misuses()[0].find("cudaHostUnregister: "), size_t{0});
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
