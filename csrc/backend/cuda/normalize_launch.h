#pragma once

#include <cuda_runtime.h>

#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"

namespace fastloader {

/// Queues the kernel on `stream` of the current device. Expects a spec that passed validate().
cudaError_t launch_normalize(const NormalizeSpec& spec, const void* in, void* out,
                             cudaStream_t stream);

/// The same with records, for a spec that passed its validate().
cudaError_t launch_augment(const AugmentSpec& spec, const void* records, const void* in, void* out,
                           cudaStream_t stream);

/// Loads every kernel into the current device. CUDA would load each at its first launch, on the
/// prefetch thread, and wait for the device there.
cudaError_t load_normalize_kernels();
cudaError_t load_augment_kernels();

}  // namespace fastloader
