#pragma once

// Only for the x86 files behind the dispatch list: the intrinsics of AVX-512, without what GCC says
// about its own header. What is ignored here stays so to the end of the file that includes this.

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
// GCC bug 105593: the compiler's own header is said to use uninitialised vectors.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
// Unoptimised, GCC's intrinsics are macros and their conversions count as ours.
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#include <immintrin.h>

#define FASTLOADER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define FASTLOADER_AVX512_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) inline

#endif
