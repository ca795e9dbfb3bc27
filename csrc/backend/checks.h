#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "image/normalize/augment.h"
#include "image/normalize/augment_grid.h"
#include "image/normalize/grid.h"
#include "image/normalize/normalize.h"

namespace fastloader {

/// Throws InvalidArgument unless 0 <= device < count.
inline void require_device(const char* backend, int device, int count) {
  if (device >= 0 && device < count) return;
  throw InvalidArgument(std::string("there is no ") + backend + " device " +
                        std::to_string(device) + ": devices are 0 to " + std::to_string(count - 1));
}

inline bool is_multiple_of_16(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

/// Throws InvalidArgument for a grid whose warps the kernels cannot count in 32 bits.
inline void require_launchable(const char* call, size_t threads, size_t batch) {
  if (threads / kNormalizeWarp < size_t{1} << 31) return;
  throw InvalidArgument(std::string(call) + ": a batch of " + std::to_string(batch) +
                        " images is more than one launch can take");
}

/// Throws InvalidArgument for what the contract of `Stream::normalize_async` excludes.
inline void require_normalizable(const NormalizeSpec& spec, const void* in, const void* out) {
  validate(spec);
  require_launchable("normalize", make_normalize_grid(spec).threads(), spec.batch);
  if (!is_multiple_of_16(in) || !is_multiple_of_16(out)) {
    throw InvalidArgument("normalize: both addresses must be multiples of 16");
  }
}

/// The same for `Stream::augment_async`.
inline void require_augmentable(const AugmentSpec& spec, const void* records, const void* in,
                                const void* out) {
  validate(spec);
  require_launchable("augment", make_augment_grid(spec).threads(), spec.normalize.batch);
  if (!is_multiple_of_16(records) || !is_multiple_of_16(in) || !is_multiple_of_16(out)) {
    throw InvalidArgument("augment: all three addresses must be multiples of 16");
  }
}

}  // namespace fastloader
