#include "backend/cuda/cuda_memory.h"

#include <new>

#include "backend/cuda/cuda_handles.h"
#include "backend/cuda/numa.h"
#include "base/error.h"

namespace fastloader {
namespace {

std::unique_ptr<Mapping> map(size_t bytes) {
  try {
    return std::make_unique<Mapping>(bytes, Mapping::InChild::kAbsent);
  } catch (const std::bad_alloc&) {
    throw BackendError("cannot map " + std::to_string(bytes) + " bytes of host memory");
  }
}

}  // namespace

CudaHostBlock::CudaHostBlock(int device, size_t bytes, int numa_node)
    : device_(device), mapping_(map(bytes)) {
  prefer_numa_node(mapping_->data(), mapping_->bytes(), numa_node);
  const DeviceGuard guard(device);
  // Registering touches every page, after the choice of the node and in one go.
  const cudaError_t status =
      cudaHostRegister(mapping_->data(), mapping_->bytes(), cudaHostRegisterDefault);
  if (status != cudaSuccess) {
    why_not_pinned_ = std::to_string(mapping_->bytes()) + " bytes could not be pinned: " +
                      cuda_failure(status, FASTLOADER_CUDA_CALL("cudaHostRegister"), device);
  }
}

CudaHostBlock::~CudaHostBlock() {
  if (!lifetime_.may_release()) {
    static_cast<void>(mapping_.release());
    return;
  }
  if (!pinned()) return;
  const DeviceGuard guard(device_, std::nothrow);
  const cudaError_t status = cudaHostUnregister(mapping_->data());
  if (status == cudaSuccess) return;
  cuda_forgive(status, FASTLOADER_CUDA_CALL("cudaHostUnregister"), device_);
  static_cast<void>(mapping_.release());  // the device may still know these pages
}

CudaDeviceBlock::CudaDeviceBlock(int device, size_t bytes) : device_(device), bytes_(bytes) {
  const DeviceGuard guard(device);
  const cudaError_t status = cudaMalloc(&data_, bytes == 0 ? 1 : bytes);
  if (status != cudaSuccess) {
    throw BackendError("cannot allocate " + std::to_string(bytes) + " bytes: " +
                       cuda_failure(status, FASTLOADER_CUDA_CALL("cudaMalloc"), device));
  }
}

CudaDeviceBlock::~CudaDeviceBlock() {
  if (!lifetime_.may_release()) return;
  const DeviceGuard guard(device_, std::nothrow);
  cuda_forgive(cudaFree(data_), FASTLOADER_CUDA_CALL("cudaFree"), device_);
}

}  // namespace fastloader
