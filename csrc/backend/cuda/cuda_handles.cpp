#include "backend/cuda/cuda_handles.h"

#include <atomic>
#include <memory>
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

// The device that the calling thread has been attached to, -1 for none.
thread_local int t_attached = -1;

}  // namespace

const CudaDriver& CudaDriver::instance() {
  // Made once and never destroyed. Partner: itself; acquire and release publish the functions.
  static std::atomic<const CudaDriver*> current{nullptr};
  const CudaDriver* known = current.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  auto made = std::make_unique<CudaDriver>();
  fetch("cuCtxGetCurrent", made->get_current);
  fetch("cuCtxSetCurrent", made->set_current);
  if (current.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *known;
}

void attach_this_thread(int device) {
  t_attached = -1;
  cuda_check(cudaSetDevice(device), FASTLOADER_CUDA_CALL("cudaSetDevice"), device);
  // By default a call that captures do not allow ruins every capture, also another thread's.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cuda_check(cudaThreadExchangeStreamCaptureMode(&mode),
             FASTLOADER_CUDA_CALL("cudaThreadExchangeStreamCaptureMode"), device);
  t_attached = device;
}

DeviceGuard::DeviceGuard(int device, std::nothrow_t) noexcept
    : driver_(CudaDriver::instance()), attached_(t_attached == device) {
  if (attached_) return;
  knows_before_ = driver_.get_current(&before_) == CUDA_SUCCESS;
  status_ = cudaSetDevice(device);
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
  // The runtime also keeps a failure as the thread's last error, where the next launch finds it.
  if (status_ != cudaSuccess || !exchanged_) cudaGetLastError();
}

DeviceGuard::DeviceGuard(int device) : DeviceGuard(device, std::nothrow) {
  cuda_check(status_, FASTLOADER_CUDA_CALL("cudaSetDevice"), device);
}

DeviceGuard::~DeviceGuard() {
  if (attached_) return;
  // Before the context: without one, the runtime would make one for this very call.
  if (exchanged_ && cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) cudaGetLastError();
  if (!knows_before_) {
    // Putting back what was never read would take the caller's away. This device stays selected.
    t_attached = -1;
    return;
  }
  CUcontext now = nullptr;
  if (driver_.get_current(&now) != CUDA_SUCCESS || now != before_) driver_.set_current(before_);
}

}  // namespace fastloader
