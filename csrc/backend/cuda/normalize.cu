#include "backend/cuda/normalize_launch.h"
#include "image/normalize/kernel.h"

namespace fastloader {
namespace {

constexpr unsigned kThreadsPerBlock = 256;

template <class Kernel>
__global__ void __launch_bounds__(kThreadsPerBlock)
    normalize_kernel(const NormalizeGrid grid, const void* in, void* out) {
  const size_t thread = size_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x;
  if (static_cast<uint32_t>(thread / kNormalizeWarp) < grid.warps) Kernel{}(grid, in, out, thread);
}

}  // namespace

cudaError_t launch_normalize(const NormalizeSpec& spec, const void* in, void* out,
                             cudaStream_t stream) {
  const NormalizeGrid grid = make_normalize_grid(spec);
  const size_t blocks = (grid.threads() + kThreadsPerBlock - 1) / kThreadsPerBlock;
  if (blocks == 0) return cudaSuccess;  // an empty grid is an error to CUDA
  cudaGetLastError();  // what an earlier call of this thread left is not the launch's
  visit_normalize_kernel(spec, [&](auto kernel) {
    normalize_kernel<decltype(kernel)>
        <<<static_cast<unsigned>(blocks), kThreadsPerBlock, 0, stream>>>(grid, in, out);
  });
  return cudaGetLastError();
}

cudaError_t load_normalize_kernels() {
  cudaError_t status = cudaSuccess;
  for_each_normalize_kernel([&status](auto kernel) {
    cudaFuncAttributes attributes;
    if (status == cudaSuccess) {
      status = cudaFuncGetAttributes(&attributes, normalize_kernel<decltype(kernel)>);
    }
  });
  return status;
}

}  // namespace fastloader
