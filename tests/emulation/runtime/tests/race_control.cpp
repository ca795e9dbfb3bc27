// Under ThreadSanitizer: that the emulated runtime hides no race and invents none.
//
//   cuda_emulated_race_control good    is silent
//   cuda_emulated_race_control bad     is reported: the source is written while the copy may run
//   cuda_emulated_race_control order   is reported: a second stream reads without having waited
//
// emulator_race_test.cpp starts each of them.
#include <sys/mman.h>

#include <cstdio>
#include <string>

#include "cuda_emulated.h"

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "good";
  constexpr size_t kBytes = 4096;
  auto* host = static_cast<char*>(
      mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  void* device = nullptr;
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  cudaSetDevice(0);
  cudaHostRegister(host, 2 * kBytes, cudaHostRegisterDefault);
  cudaMalloc(&device, kBytes);
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
  // Not memset: one of a constant size is expanded where the sanitizer does not look.
  const auto fill = [host](char value) {
    for (size_t i = 0; i < kBytes; ++i) static_cast<volatile char*>(host)[i] = value;
  };
  fill(1);
  cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, first);
  if (what == "bad") fill(2);
  cudaEventRecord(event, first);
  if (what != "order") cudaStreamWaitEvent(second, event, 0);
  cudaMemcpyAsync(host + kBytes, device, kBytes, cudaMemcpyDeviceToHost, second);
  cudaStreamSynchronize(second);
  cudaStreamSynchronize(first);
  std::printf("%d\n", host[kBytes]);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
  cudaEventDestroy(event);
  cudaFree(device);
  cudaHostUnregister(host);
  munmap(host, 2 * kBytes);
}
