#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/checks.h"
#include "backend/cuda/cuda_handles.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_report.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/normalize_launch.h"
#include "backend/cuda/numa.h"
#include "backend/registry.h"
#include "base/error.h"

namespace fastloader {
namespace {

int numa_node_of(int device) {
  char bus_id[32] = {};
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return numa_node_of_pci_device(bus_id);
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int devices) {
    for (int device = 0; device < devices; ++device) numa_nodes_.push_back(numa_node_of(device));
    loaded_.resize(numa_nodes_.size());
  }

  const char* name() const override { return "cuda"; }
  int device_count() const override { return static_cast<int>(numa_nodes_.size()); }
  int numa_node(int device) const override {
    require(device);
    return numa_nodes_[static_cast<size_t>(device)];
  }

  void attach_thread(int device) override {
    require(device);
    attach_this_thread(device);
  }

  std::unique_ptr<Stream> create_stream(int device) override {
    require(device);
    load_kernels(device);
    return std::make_unique<CudaStream>(device);
  }

  std::unique_ptr<Stream> wrap_external(int device, uintptr_t handle) override {
    require(device);
    return std::make_unique<CudaStream>(device, handle);
  }

  std::unique_ptr<Event> create_event(int device) override {
    require(device);
    return std::make_unique<CudaEvent>(device);
  }

  std::unique_ptr<HostBlock> allocate_host(int device, size_t bytes) override {
    require(device);
    return std::make_unique<CudaHostBlock>(device, bytes, numa_nodes_[static_cast<size_t>(device)]);
  }

  std::unique_ptr<DeviceBlock> allocate_device(int device, size_t bytes) override {
    require(device);
    return std::make_unique<CudaDeviceBlock>(device, bytes);
  }

 private:
  void require(int device) const { require_device("CUDA", device, device_count()); }

  /// Before the first stream of a device, where a wait for the device disturbs no pipeline.
  void load_kernels(int device) {
    const std::lock_guard<std::mutex> lock(loading_);
    if (loaded_[static_cast<size_t>(device)]) return;
    const DeviceGuard guard(device);
    const CudaCall call = FASTLOADER_CUDA_CALL("cudaFuncGetAttributes");
    cudaError_t status = load_normalize_kernels();
    if (status == cudaSuccess) status = load_augment_kernels();
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
      throw BackendError(cuda_failure(status, call, device) +
                         ": fastloader was built for the architectures " + cuda_architectures() +
                         ". Build it again, with CMAKE_CUDA_ARCHITECTURES set to this device's");
    }
    cuda_check(status, call, device);
    loaded_[static_cast<size_t>(device)] = true;
  }

  std::vector<int> numa_nodes_;  // of each device, -1: unknown
  std::mutex loading_;           // guards: loaded_
  std::vector<bool> loaded_;     // of each device: whether its kernels are
};

}  // namespace

std::unique_ptr<Backend> create_cuda_backend() {
  const CudaProbe probe = probe_cuda();
  if (!probe.problem.empty()) throw BackendUnavailable(probe.problem);
  CudaDriver::instance();  // now, where it may throw; destructors use it later
  return std::make_unique<CudaBackend>(probe.devices);
}

}  // namespace fastloader
