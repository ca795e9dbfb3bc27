#pragma once

/// For what is to become part of functions that have an instruction set of their own.
#define FASTLOADER_JPEG_INLINE __attribute__((always_inline)) inline
