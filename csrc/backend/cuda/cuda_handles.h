#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <new>

#include "backend/cuda/cuda_check.h"
#include "backend/lifetime.h"

namespace fastloader {

/// The two driver functions the guard needs, fetched through the runtime: linking libcuda would
/// keep the module from loading without a driver.
struct CudaDriver {
  CUresult (*get_current)(CUcontext*) = nullptr;
  CUresult (*set_current)(CUcontext) = nullptr;

  /// Fetches them at first use. Throws BackendUnavailable when the driver lacks them.
  static const CudaDriver& instance();
};

/// Selects the device for the calling thread, for good, and lets the thread's calls ruin no graph
/// capture. DeviceGuard then has nothing to do on this thread for this device, so the thread must
/// not select another device by itself. Throws BackendError.
void attach_this_thread(int device);

/// Selects a device and puts the caller's context back. It is the context that is kept, not the
/// number of the device: a thread which has none yet would get one on device 0, and half a gigabyte
/// of its memory with it, from a cudaSetDevice that was only meant to restore.
///
/// Meanwhile the thread's calls ruin no graph capture elsewhere in the process. Ours come from the
/// consumer's thread and from whichever thread pushes, too, which never attached themselves: a slot
/// that is pinned there while the training loop captures would end the capture with an error.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  DeviceGuard(int device, std::nothrow_t) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  cudaError_t status() const { return status_; }

 private:
  const CudaDriver& driver_;
  const bool attached_;
  bool knows_before_ = false;
  CUcontext before_ = nullptr;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the caller's
  bool exchanged_ = false;
  cudaError_t status_ = cudaSuccess;
};

/// Owns one stream or event of a device.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle(int device, Handle handle) : device_(device), handle_(handle) {}
  CudaHandle(const CudaHandle&) = delete;
  CudaHandle& operator=(const CudaHandle&) = delete;
  ~CudaHandle() {
    if (!lifetime_.may_release()) return;
    const DeviceGuard guard(device_, std::nothrow);
    cuda_forgive(kDestroy(handle_), FASTLOADER_CUDA_CALL("destroying a stream or event"), device_);
  }

  Handle get() const& { return handle_; }
  Handle get() && = delete;
  int device() const { return device_; }
  const Lifetime& lifetime() const { return lifetime_; }

 private:
  const int device_;
  const Handle handle_;
  const Lifetime lifetime_;
};

using CudaStreamHandle = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEventHandle = CudaHandle<cudaEvent_t, cudaEventDestroy>;

}  // namespace fastloader
