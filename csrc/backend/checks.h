#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "image/normalize.h"

namespace fastloader {

/// Throws InvalidArgument unless 0 <= device < count.
inline void require_device(const char* backend, int device, int count) {
  if (device >= 0 && device < count) return;
  throw InvalidArgument(std::string("there is no ") + backend + " device " +
                        std::to_string(device) + ": devices are 0 to " + std::to_string(count - 1));
}

/// Throws InvalidArgument for what the contract of `Stream::normalize_async` excludes.
inline void require_normalizable(const NormalizeSpec& spec, const void* in, const void* out) {
  validate(spec);
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!aligned(in) || !aligned(out)) {
    throw InvalidArgument("normalize: both addresses must be multiples of 16");
  }
}

}  // namespace fastloader
