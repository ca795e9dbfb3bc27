#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace fastloader {

/// What can be said about CUDA without creating a context. Never throws; `problem` says, in words,
/// why the backend cannot be opened, and is empty when it can.
struct CudaReport {
  struct Device {
    std::string name;
    int major = 0;
    int minor = 0;
    size_t total_memory = 0;
  };
  bool compiled_in = false;
  int runtime_version = 0;  ///< as CUDA counts: 13000 is 13.0; 0 when not compiled in
  int driver_version = 0;   ///< newest CUDA version the driver serves; 0 without a driver
  std::string architectures;
  std::vector<Device> devices;
  std::string problem;
};

CudaReport describe_cuda();

/// "cuda" or "host". One instance of each per process, never destroyed (a device may outlive every
/// static). Throws BackendUnavailable when it cannot work here, InvalidArgument for another name.
Backend& open_backend(const std::string& name);

/// Implemented by cuda/cuda_backend.cpp or cuda/cuda_absent.cpp, whichever CMake compiled.
std::unique_ptr<Backend> create_cuda_backend();

}  // namespace fastloader
