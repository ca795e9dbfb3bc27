#pragma once

#include <string>

namespace fastloader {

/// What stands between this machine and CUDA; makes no context.
struct CudaProbe {
  int runtime_version = 0;
  int driver_version = 0;
  int devices = 0;
  std::string problem;  ///< empty: it can be used
};

CudaProbe probe_cuda();

/// Those that the kernels were compiled for, as CMake writes them.
const char* cuda_architectures();

}  // namespace fastloader
