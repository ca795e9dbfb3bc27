#pragma once

/// Marks a function that the CUDA compiler makes for the device as well; nothing for other
/// compilers.
#if defined(__CUDACC__)
#define FASTLOADER_HOST_DEVICE __host__ __device__
#else
#define FASTLOADER_HOST_DEVICE
#endif

/// Before a loop whose body is long and seldom runs: the CUDA compiler must not write it out
/// several times.
#if defined(__CUDACC__)
#define FASTLOADER_ROLLED _Pragma("unroll 1")
#else
#define FASTLOADER_ROLLED
#endif
