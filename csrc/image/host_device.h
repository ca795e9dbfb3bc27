#pragma once

/// Marks a function that the CUDA compiler makes for the device as well; nothing for other
/// compilers.
#if defined(__CUDACC__)
#define FASTLOADER_HOST_DEVICE __host__ __device__
#else
#define FASTLOADER_HOST_DEVICE
#endif
