#pragma once

#include <cuda_runtime.h>

#include <string>

namespace fastloader {

/// Where a CUDA call stands in our source.
struct CudaCall {
  const char* name;
  const char* file;
  int line;
};

#define FASTLOADER_CUDA_CALL(name) (::fastloader::CudaCall{name, __FILE__, __LINE__})

/// What failed, on which device, CUDA's name and words for it, and where. Also clears the thread's
/// last error, so that the failure is not blamed on the next call.
std::string cuda_failure(cudaError_t status, const CudaCall& call, int device);

/// Throws BackendError unless `status` is success.
void cuda_check(cudaError_t status, const CudaCall& call, int device);

/// For destructors: logs a failure, but not the runtime's own unloading at exit.
void cuda_forgive(cudaError_t status, const CudaCall& call, int device) noexcept;

}  // namespace fastloader
