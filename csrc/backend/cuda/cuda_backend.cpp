#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/checks.h"
#include "backend/cuda/cuda_handles.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_report.h"
#include "backend/cuda/cuda_stream.h"
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
  }

  const char* name() const override { return "cuda"; }
  int device_count() const override { return static_cast<int>(numa_nodes_.size()); }

  void attach_thread(int device) override {
    require(device);
    cuda_check(cudaSetDevice(device), FASTLOADER_CUDA_CALL("cudaSetDevice"), device);
    // By default a call that captures do not allow ruins every capture, also another thread's.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda_check(cudaThreadExchangeStreamCaptureMode(&mode),
               FASTLOADER_CUDA_CALL("cudaThreadExchangeStreamCaptureMode"), device);
  }

  std::unique_ptr<Stream> create_stream(int device) override {
    require(device);
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

  std::vector<int> numa_nodes_;  // of each device, -1: unknown
};

}  // namespace

std::unique_ptr<Backend> create_cuda_backend() {
  const CudaProbe probe = probe_cuda();
  if (!probe.problem.empty()) throw BackendUnavailable(probe.problem);
  CudaDriver::instance();  // now, where it may throw; destructors use it later
  return std::make_unique<CudaBackend>(probe.devices);
}

}  // namespace fastloader
