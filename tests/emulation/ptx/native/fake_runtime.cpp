// What nvcc's host code asks of the CUDA runtime, as far as it launches kernels: a launch calls a
// function of Python's instead of a GPU. The launches come from one thread.

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <string>

#include "plain_types.h"

namespace {

using OnLaunch = void (*)(const char* name, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, size_t shared,
                          void** args);
OnLaunch on_launch = nullptr;

/// Device names of the registered kernels by the address of their host stub.
std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> all;  // static constructors of other files register
  return all;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
Configuration configuration;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  kernels()[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             size_t shared, cudaStream_t) {
  const auto found = kernels().find(function);
  if (found == kernels().end()) return cudaErrorInvalidDeviceFunction;
  on_launch(found->second.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, args);
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared, stream);
}

/// Host code asks this to have a kernel loaded before its first launch.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  return kernels().count(function) == 1 ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error of the fake runtime"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the fake runtime"; }

}  // extern "C"

FASTLOADER_EXPORT void set_on_launch(OnLaunch function) { on_launch = function; }

/// The names of all kernels, a space after each.
FASTLOADER_EXPORT const char* kernel_names() {
  static std::string all;
  all.clear();
  for (const auto& kernel : kernels()) all += kernel.second + " ";
  return all.c_str();
}
