#include "backend/cuda/cuda_check.h"

#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace fastloader {

std::string cuda_failure(cudaError_t status, const CudaCall& call, int device) {
  cudaGetLastError();
  const char* slash = std::strrchr(call.file, '/');
  return std::string(call.name) + " failed on CUDA device " + std::to_string(device) + ": " +
         cudaGetErrorName(status) + " (" + cudaGetErrorString(status) + ") [" +
         (slash == nullptr ? call.file : slash + 1) + ":" + std::to_string(call.line) + "]";
}

void cuda_check(cudaError_t status, const CudaCall& call, int device) {
  if (status != cudaSuccess) throw BackendError(cuda_failure(status, call, device));
}

void cuda_forgive(cudaError_t status, const CudaCall& call, int device) noexcept {
  if (status == cudaSuccess) return;
  try {
    const std::string what = cuda_failure(status, call, device);
    if (status != cudaErrorCudartUnloading) log_warning(what);
  } catch (...) {  // Out of memory while giving something back: nothing better to do than go on.
  }
}

}  // namespace fastloader
