#include "backend/cuda/normalize_launch.h"
#include "image/normalize/augment_kernel.h"

namespace fastloader {
namespace {

constexpr unsigned kThreadsPerBlock = 256;

// Not constant memory, which serves one address to a warp at a time: these are random.
__device__ const int32_t device_normal_table[kNormalTableSize] = {
#include "image/normalize/normal_table.inc"
};

template <class Kernel>
__global__ void __launch_bounds__(kThreadsPerBlock, Kernel::kBlocksAtOnce)
    augment_kernel(const AugmentGrid grid, const void* __restrict__ records,
                   const void* __restrict__ in, void* __restrict__ out) {
  const size_t thread = size_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x;
  if (static_cast<uint32_t>(thread / kNormalizeWarp) < grid.normalize.warps) {
    Kernel{}(grid, device_normal_table, records, in, out, thread);
  }
}

}  // namespace

cudaError_t launch_augment(const AugmentSpec& spec, const void* records, const void* in, void* out,
                           cudaStream_t stream) {
  const AugmentGrid grid = make_augment_grid(spec);
  const size_t blocks = (grid.threads() + kThreadsPerBlock - 1) / kThreadsPerBlock;
  if (blocks == 0) return cudaSuccess;  // an empty grid is an error to CUDA
  cudaGetLastError();  // what an earlier call of this thread left is not the launch's
  visit_augment_kernel(spec, [&](auto kernel) {
    augment_kernel<decltype(kernel)>
        <<<static_cast<unsigned>(blocks), kThreadsPerBlock, 0, stream>>>(grid, records, in, out);
  });
  return cudaGetLastError();
}

cudaError_t load_augment_kernels() {
  cudaError_t status = cudaSuccess;
  for_each_augment_kernel([&status](auto kernel) {
    cudaFuncAttributes attributes;
    if (status == cudaSuccess) {
      status = cudaFuncGetAttributes(&attributes, augment_kernel<decltype(kernel)>);
    }
  });
  return status;
}

}  // namespace fastloader
