#include "backend/cuda/cuda_report.h"

#include <cuda_runtime.h>

#include "backend/registry.h"

namespace fastloader {
namespace {

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string explain(cudaError_t status, const CudaProbe& probe) {
  const std::string built = "fastloader was built with CUDA " + dotted(probe.runtime_version);
  if (status == cudaSuccess && probe.devices > 0) return {};
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    return "no CUDA device is visible (driver for CUDA " + dotted(probe.driver_version) +
           "; is CUDA_VISIBLE_DEVICES empty?)";
  }
  // A forked child may be told neither what devices there are nor of which version the driver is.
  if (probe.driver_version == 0 && status != cudaErrorInitializationError) {
    return "no NVIDIA driver was found on this machine (" + built +
           " and needs a driver for that version)";
  }
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it serves CUDA " + dotted(probe.driver_version) +
           ", but " + built + ". Update the driver, or build fastloader with CUDA " +
           dotted(probe.driver_version) + " or older";
  }
  const std::string driver =
      probe.driver_version == 0 ? "" : "driver for CUDA " + dotted(probe.driver_version) + "; ";
  return "CUDA cannot be used in this process: cudaGetDeviceCount failed: " +
         std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) +
         "). In a process forked after CUDA was first used this is " +
         "to be expected; otherwise see what nvidia-smi says (" + driver + built + ")";
}

}  // namespace

CudaProbe probe_cuda() {
  CudaProbe probe;
  if (cudaRuntimeGetVersion(&probe.runtime_version) != cudaSuccess) probe.runtime_version = 0;
  if (cudaDriverGetVersion(&probe.driver_version) != cudaSuccess) probe.driver_version = 0;
  const cudaError_t status = cudaGetDeviceCount(&probe.devices);
  if (status != cudaSuccess) probe.devices = 0;
  cudaGetLastError();
  probe.problem = explain(status, probe);
  return probe;
}

const char* cuda_architectures() { return FASTLOADER_CUDA_ARCHITECTURES; }

CudaReport describe_cuda() {
  CudaReport report;
  report.compiled_in = true;
  report.architectures = cuda_architectures();
  const CudaProbe probe = probe_cuda();
  report.runtime_version = probe.runtime_version;
  report.driver_version = probe.driver_version;
  report.problem = probe.problem;
  for (int device = 0; device < probe.devices; ++device) {
    cudaDeviceProp properties;
    const cudaError_t status = cudaGetDeviceProperties(&properties, device);
    CudaReport::Device found;
    if (status == cudaSuccess) {
      found.name = properties.name;
      found.major = properties.major;
      found.minor = properties.minor;
      found.total_memory = properties.totalGlobalMem;
    } else {
      cudaGetLastError();
      found.name = std::string("unknown: ") + cudaGetErrorString(status);
    }
    report.devices.push_back(found);
  }
  return report;
}

}  // namespace fastloader
