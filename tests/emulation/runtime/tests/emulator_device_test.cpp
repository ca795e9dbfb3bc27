// Devices, contexts, and the threads that use them.

#include <cuda.h>

#include <thread>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

template <class Function>
Function entry_point(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  EXPECT(cudaGetDriverEntryPointByVersion(name, &found, 4000, cudaEnableDefault, &result) ==
         cudaSuccess);
  EXPECT(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function>(found);
}

TEST(a_context_is_made_by_the_first_call_that_needs_one) {
  const char* name = "a_context_is_made_by_the_first_call_that_needs_one";
  if (!is_child_of(name)) {  // in a process of its own, where no context exists yet
    if (!is_child()) EXPECT_EQ(run_alone(name).end.exit_code, 0);
    return;
  }
  int count = 0;
  EXPECT(cudaGetDeviceCount(&count) == cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT(!cuda_emulated::context_exists(0));
  EXPECT(cudaSetDevice(1) == cudaSuccess);
  EXPECT(cuda_emulated::context_exists(1));
  EXPECT(!cuda_emulated::context_exists(0));
  EXPECT(cuda_emulated::notes().empty());
  std::thread([] {  // device 0 is every thread's first
    const RawStream stream;
    EXPECT(cuda_emulated::context_exists(0));
  })
      .join();
  EXPECT_EQ(cuda_emulated::notes().size(), size_t{1});
}

TEST(the_number_of_devices_is_an_option) {
  const Clean clean;
  cuda_emulated::Options options;
  options.devices = 1;
  cuda_emulated::set_options(options);
  int count = 0;
  EXPECT(cudaGetDeviceCount(&count) == cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
  options.devices = 0;
  cuda_emulated::set_options(options);
  EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
}

TEST(a_tests_options_keep_the_environments_delays) {
  const char* name = "a_tests_options_keep_the_environments_delays";
  if (!is_child_of(name)) {
    if (is_child()) return;
    const SelfEnd self =
        run_alone(name, {{"CUDA_EMULATED_SEED", "5"}, {"CUDA_EMULATED_MAX_DELAY_US", "7"}});
    EXPECT_EQ(self.end.exit_code, 0);
    return;
  }
  const auto expect = [](uint64_t seed, unsigned longest) {
    EXPECT(cuda_emulated::options().delay_seed == seed);
    EXPECT(cuda_emulated::options().max_delay_us == longest);
  };
  expect(5, 7);
  cuda_emulated::Options options;
  options.devices = 1;
  cuda_emulated::set_options(options);
  expect(5, 7);
  EXPECT_EQ(cuda_emulated::options().devices, 1);
  options.delay_seed = 0;  // asks for none
  cuda_emulated::set_options(options);
  expect(0, 7);
  options.max_delay_us = 9;
  cuda_emulated::set_options(options);
  expect(0, 9);
  cuda_emulated::set_options({});
  expect(5, 7);
}

TEST(the_current_device_is_the_threads) {
  const Clean clean;
  EXPECT(cudaSetDevice(1) == cudaSuccess);
  int elsewhere = -1;
  std::thread([&] { cudaGetDevice(&elsewhere); }).join();
  EXPECT_EQ(elsewhere, 0);
  int here = -1;
  EXPECT(cudaGetDevice(&here) == cudaSuccess);
  EXPECT_EQ(here, 1);
}

TEST(a_context_can_be_taken_and_put_back) {
  const Clean clean;
  const auto get = entry_point<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  const auto set = entry_point<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  std::thread([&] {
    CUcontext context = nullptr;
    EXPECT(get(&context) == CUDA_SUCCESS);
    EXPECT(context == nullptr);
    cudaSetDevice(1);
    EXPECT(get(&context) == CUDA_SUCCESS);
    EXPECT(context != nullptr);
    cudaSetDevice(0);
    EXPECT(set(context) == CUDA_SUCCESS);
    int device = -1;
    EXPECT(cudaGetDevice(&device) == cudaSuccess);
    EXPECT_EQ(device, 1);
    EXPECT(set(nullptr) == CUDA_SUCCESS);
    EXPECT(get(&context) == CUDA_SUCCESS);
    EXPECT(context == nullptr);
  }).join();
}

TEST(a_driver_has_no_function_of_another_name) {
  const Clean clean;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  EXPECT(cudaGetDriverEntryPointByVersion("cuNothing", &found, 4000, cudaEnableDefault, &result) ==
         cudaSuccess);
  EXPECT(result == cudaDriverEntryPointSymbolNotFound);
  EXPECT(found == nullptr);
}

TEST(a_stream_waits_for_an_event_of_another_device) {
  const Clean clean;
  const RawStream first;
  const RawEvent event;
  cudaSetDevice(1);
  const RawStream second;
  const RawEvent behind;
  cudaSetDevice(0);
  RawGate gate;
  gate.close(first);
  EXPECT(cudaEventRecord(event, first) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  cudaSetDevice(1);
  EXPECT(cudaEventRecord(behind, second) == cudaSuccess);
  EXPECT(cudaEventQuery(behind) == cudaErrorNotReady);
  gate.open();
  EXPECT(cudaEventSynchronize(behind) == cudaSuccess);
}

TEST(the_per_thread_stream_is_another_one_on_each_thread) {
  const Clean clean;
  const RawEvent event;
  RawGate gate;
  gate.close(cudaStreamPerThread);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] {
    cudaSetDevice(0);
    elsewhere = cudaStreamSynchronize(cudaStreamPerThread);  // another stream there
  }).join();
  EXPECT(elsewhere == cudaSuccess);
  EXPECT(cudaEventRecord(event, cudaStreamPerThread) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  gate.open();
  EXPECT(cudaEventSynchronize(event) == cudaSuccess);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
