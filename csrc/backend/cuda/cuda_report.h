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

}  // namespace fastloader
