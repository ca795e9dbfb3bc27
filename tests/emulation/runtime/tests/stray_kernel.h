#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace fastloader::testing {

enum class Stray { kReadByte, kWriteByte, kWriteWord };

/// Queues a kernel of one thread that touches `memory` at `offset`, which may be wrong in any way.
cudaError_t launch_stray(Stray stray, void* memory, size_t offset, cudaStream_t stream);

}  // namespace fastloader::testing
