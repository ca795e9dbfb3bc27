// What torch does on the CUDA runtime beside fastloader: it owns the memory of the batches, and the
// training loop works on the legacy default stream. tests/support/emulated_cuda.py calls this.

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cuda_emulated.h"

namespace {

struct Fill {
  void* real;
  size_t bytes;
};

void fill(void* given) {
  const std::unique_ptr<Fill> filled(static_cast<Fill*>(given));
  std::memset(filled->real, 0xCB, filled->bytes);
}

}  // namespace

extern "C" {

/// Returns the device address of new memory, or null. Unlike a GPU's memory it is there in a forked
/// child, too: tests look at batches in worker processes.
CUDA_EMULATED_API void* emulated_torch_allocate(size_t bytes) {
  const cuda_emulated::Outsider torch;
  void* device = nullptr;
  if (cudaMalloc(&device, bytes) != cudaSuccess) return nullptr;
  cuda_emulated::keep_to_the_end(device);
  constexpr uintptr_t kPage = 4096;
  const auto real = reinterpret_cast<uintptr_t>(cuda_emulated::real_address(device));
  const uintptr_t first = real / kPage * kPage;
  madvise(reinterpret_cast<void*>(first), real + bytes - first, MADV_DOFORK);
  return device;
}

CUDA_EMULATED_API void* emulated_torch_real(void* device) {
  return cuda_emulated::real_address(device);
}

/// Queues a write of the training loop to memory that its allocator has recycled. Whatever is
/// written there without being ordered behind the loop's stream gets lost in it.
CUDA_EMULATED_API int emulated_torch_fill(void* device, size_t bytes) {
  const cuda_emulated::Outsider torch;
  auto given = std::make_unique<Fill>(Fill{cuda_emulated::real_address(device), bytes});
  const cudaError_t status = cudaLaunchHostFunc(cudaStreamLegacy, fill, given.get());
  if (status == cudaSuccess) given.release();
  return status;
}

/// Waits for the training loop's stream, as every look at a tensor on the CPU does.
CUDA_EMULATED_API int emulated_torch_synchronize() {
  const cuda_emulated::Outsider torch;
  return cudaStreamSynchronize(cudaStreamLegacy);
}

/// Returns the number of misuses so far, and writes the first of them into `text`.
CUDA_EMULATED_API size_t emulated_torch_misuses(char* text, size_t room) {
  const auto all = cuda_emulated::misuses();
  std::snprintf(text, room, "%s", all.empty() ? "" : all.front().c_str());
  return all.size();
}

}  // extern "C"
