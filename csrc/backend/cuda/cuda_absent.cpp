#include "backend/registry.h"
#include "base/error.h"

namespace fastloader {
namespace {

constexpr const char* kProblem =
    "fastloader was built without CUDA. Install the CUDA toolkit (nvcc on PATH, or CUDACXX set to "
    "it) and build again, in a checkout of its source: FASTLOADER_CUDA=on pip install "
    "--force-reinstall --no-deps .";

}  // namespace

CudaReport describe_cuda() {
  CudaReport report;
  report.problem = kProblem;
  return report;
}

std::unique_ptr<Backend> create_cuda_backend() { throw BackendUnavailable(kProblem); }

}  // namespace fastloader
