#include "backend/cuda/cuda_handles.h"

#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

template <typename Function>
void fetch(const char* name, Function& function) {
  constexpr unsigned kSince = 4000;  // both have had the same signature from CUDA 4.0 on
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result);
#else
  static_cast<void>(kSince);
  const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    cudaGetLastError();
    throw BackendUnavailable(std::string("the NVIDIA driver does not offer ") + name);
  }
  function = reinterpret_cast<Function>(found);
}

}  // namespace

const CudaDriver& CudaDriver::instance() {
  static const CudaDriver fetched = [] {
    CudaDriver driver;
    fetch("cuCtxGetCurrent", driver.get_current);
    fetch("cuCtxSetCurrent", driver.set_current);
    return driver;
  }();
  return fetched;
}

DeviceGuard::DeviceGuard(int device, std::nothrow_t) noexcept : driver_(CudaDriver::instance()) {
  if (driver_.get_current(&before_) != CUDA_SUCCESS) before_ = nullptr;
  status_ = cudaSetDevice(device);
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

DeviceGuard::DeviceGuard(int device) : DeviceGuard(device, std::nothrow) {
  cuda_check(status_, FASTLOADER_CUDA_CALL("cudaSetDevice"), device);
}

DeviceGuard::~DeviceGuard() {
  // Before the context: without one, the runtime would make one for this very call.
  if (exchanged_) cudaThreadExchangeStreamCaptureMode(&mode_);
  CUcontext now = nullptr;
  if (driver_.get_current(&now) != CUDA_SUCCESS || now != before_) driver_.set_current(before_);
}

}  // namespace fastloader
