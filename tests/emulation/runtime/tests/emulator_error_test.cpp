// Whose an error is and how long it stays; the faults that a test injects; the counts of calls.

#include <thread>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

cudaError_t copy_within(const RawBlock& block, cudaStream_t stream) {
  return cudaMemcpyAsync(block.data(), block.data() + 50, 50, cudaMemcpyDeviceToDevice, stream);
}

TEST(the_last_error_is_the_threads_and_is_cleared_by_reading) {
  const Clean clean;
  const RawStream stream;
  EXPECT(cudaMemcpyAsync(nullptr, nullptr, 8, cudaMemcpyDeviceToDevice, stream) ==
         cudaErrorInvalidValue);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = cudaGetLastError(); }).join();
  EXPECT(elsewhere == cudaSuccess);
  int device = 0;
  EXPECT(cudaGetDevice(&device) == cudaSuccess);  // a success clears nothing
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaSuccess);
}

TEST(not_ready_is_a_last_error) {
  const Clean clean;
  const RawStream stream;
  const RawEvent event;
  RawGate gate;
  gate.close(stream);
  EXPECT(cudaEventRecord(event, stream) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  EXPECT(cudaGetLastError() == cudaErrorNotReady);
}

TEST(a_broken_context_stays_broken_and_the_other_device_is_well) {
  const Clean clean;
  const RawStream stream;
  const RawBlock block(100);
  cuda_emulated::inject({"exec:copy", 1, cudaErrorLaunchFailure});
  EXPECT(copy_within(block, stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  EXPECT(cudaGetLastError() == cudaErrorLaunchFailure);
  EXPECT(cudaGetLastError() == cudaErrorLaunchFailure);
  void* more = nullptr;
  EXPECT(cudaMalloc(&more, 100) == cudaErrorLaunchFailure);
  EXPECT(cuda_emulated::broken(0) == cudaErrorLaunchFailure);
  cudaSetDevice(1);
  {
    const RawStream other;
    EXPECT(cudaStreamSynchronize(other) == cudaSuccess);
  }
  EXPECT(cuda_emulated::broken(1) == cudaSuccess);
  cudaSetDevice(0);
  cuda_emulated::repair();
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST(nothing_runs_after_a_context_broke) {
  const Clean clean;
  const RawStream stream;
  const RawBlock block(100);
  bool ran = false;
  cuda_emulated::inject({"exec:copy", 1, cudaErrorLaunchFailure});
  {
    RawGate gate;
    gate.close(stream);
    EXPECT(copy_within(block, stream) == cudaSuccess);
    EXPECT(cudaLaunchHostFunc(
               stream, [](void* data) { *static_cast<bool*>(data) = true; }, &ran) == cudaSuccess);
  }
  EXPECT(!ran);
  cuda_emulated::repair();
}

TEST(a_fault_strikes_the_call_that_was_asked_for_and_says_so) {
  const Clean clean;
  const RawStream stream;
  const RawBlock block(100);
  cuda_emulated::inject({"cudaMemcpyAsync", 2, cudaErrorMemoryAllocation});
  EXPECT(copy_within(block, stream) == cudaSuccess);
  {
    const cuda_emulated::Outsider torch;
    EXPECT(copy_within(block, stream) == cudaSuccess);  // neither struck nor counted
  }
  EXPECT(copy_within(block, stream) == cudaErrorMemoryAllocation);
  EXPECT(copy_within(block, stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT_EQ(cuda_emulated::faults_struck(), uint64_t{1});
  EXPECT_EQ(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)),
            std::string("emulated: call 2 of cudaMemcpyAsync"));
}

TEST(a_fault_may_stay_or_come_some_times) {
  const Clean clean;
  cuda_emulated::Fault fault{"cudaSetDevice", 1, cudaErrorUnknown, false, 2};
  cuda_emulated::inject(fault);
  EXPECT(cudaSetDevice(0) == cudaErrorUnknown);
  EXPECT(cudaSetDevice(0) == cudaErrorUnknown);
  EXPECT(cudaSetDevice(0) == cudaSuccess);
  cuda_emulated::clear_faults();
  fault.from_then_on = true;
  cuda_emulated::inject(fault);
  for (int i = 0; i < 5; ++i) EXPECT(cudaSetDevice(0) == cudaErrorUnknown);
}

TEST(calls_are_counted_by_thread_and_function) {
  const Clean clean;
  std::thread([] {
    pthread_setname_np(pthread_self(), "counted");
    int device = 0;
    for (int i = 0; i < 3; ++i) EXPECT(cudaGetDevice(&device) == cudaSuccess);
    const cuda_emulated::Outsider torch;
    EXPECT(cudaGetDevice(&device) == cudaSuccess);
  }).join();
  cuda_emulated::Counts counts = cuda_emulated::counts();
  EXPECT_EQ(counts["counted"]["cudaGetDevice"], uint64_t{3});
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
