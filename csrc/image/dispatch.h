#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/normalize/normalize.h"

namespace fastloader {

// One list of instruction sets, best first: avx512vnni, avx512, avx2, neon, scalar; those of
// another architecture are left out when compiling. The first that this CPU and its operating
// system support is chosen at first use and kept; FASTLOADER_FORCE_ISA=<name> chooses another.

struct ColourKernels;
struct FilterKernels;
struct JpegEntropyKernels;
struct JpegPixelKernels;
struct JpegProgressiveKernels;
struct ResizeKernels;
struct WarpKernels;

using NormalizeFunction = void (*)(const NormalizeSpec& spec, const uint8_t* in, void* out);

struct Isa {
  const char* name;
  bool (*supported)();
  /// Expects a spec that passed validate().
  NormalizeFunction normalize;
  /// What a Resizer runs on.
  const ResizeKernels* resize;
  /// What the operations of a Canvas run on.
  const ColourKernels* colour;
  const FilterKernels* filter;
  const WarpKernels* warp;
  /// What JPEGs are decoded with.
  const JpegEntropyKernels* jpeg_entropy;
  const JpegPixelKernels* jpeg_pixels;
  const JpegProgressiveKernels* jpeg_progressive;
};

/// Throws InvalidArgument, listing what is available, when FASTLOADER_FORCE_ISA names anything
/// else. Never throws again once it has returned; call it early (when a loader is built) so that a
/// wrong name does not surface on a worker thread.
const Isa& active_isa();

inline const char* active_isa_name() { return active_isa().name; }

/// Names usable on this machine, best first; the last is always "scalar".
std::vector<std::string> available_isa_names();

/// Throws InvalidArgument, listing what is available, when this machine has no such implementation.
const Isa& isa_by_name(const std::string& name);

/// normalize() with the named implementation.
void normalize_with_isa(const std::string& name, const NormalizeSpec& spec, const uint8_t* in,
                        void* out);

}  // namespace fastloader
