// The host code of the kernels and the CPU's implementations, for Python's ctypes. A function
// returns 0, a CUDA error, or -1 for an exception, whose text is last_failure()'s.

#include <cmath>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "augment_reference.h"
#include "backend/checks.h"
#include "backend/cuda/normalize_launch.h"
#include "image/dispatch.h"
#include "image/normalize/kernel.h"
#include "normalize_reference.h"
#include "plain_types.h"

using namespace fastloader;
using namespace fastloader::testing;

namespace {

std::string failure;

template <class Body>
int guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    failure = error.what();
    return -1;
  }
}

}  // namespace

FASTLOADER_EXPORT const char* last_failure() { return failure.c_str(); }

/// The addresses are the interpreter's. Without `aligned` the check that both are multiples of 16
/// is left out: the kernels promise to take any.
FASTLOADER_EXPORT int gpu_normalize(const PlainNormalizeSpec* plain, const void* in, void* out,
                                    int aligned) {
  return guarded([&] {
    const NormalizeSpec spec = from_plain(*plain);
    if (aligned != 0) {
      require_normalizable(spec, in, out);
    } else {
      validate(spec);
    }
    return static_cast<int>(launch_normalize(spec, in, out, nullptr));
  });
}

/// `host_records` are the bytes at the interpreter's address `records`.
FASTLOADER_EXPORT int gpu_augment(const PlainAugmentSpec* plain, const void* host_records,
                                  const void* records, const void* in, void* out) {
  return guarded([&] {
    const AugmentSpec spec = from_plain(*plain);
    require_augmentable(spec, records, in, out);
    validate_records(spec, host_records);
    return static_cast<int>(launch_augment(spec, records, in, out, nullptr));
  });
}

/// Names of instruction sets, a space after each.
FASTLOADER_EXPORT const char* isa_names() {
  static std::string all;
  all.clear();
  for (const std::string& name : available_isa_names()) all += name + " ";
  return all.c_str();
}

FASTLOADER_EXPORT int cpu_normalize(const PlainNormalizeSpec* plain, const char* isa,
                                    const uint8_t* in, void* out) {
  return guarded([&] {
    normalize_with_isa(isa, from_plain(*plain), in, out);
    return 0;
  });
}

/// The kernels' bodies on the CPU, as the host twin runs them.
FASTLOADER_EXPORT int twin_normalize(const PlainNormalizeSpec* plain, const void* in, void* out) {
  return guarded([&] {
    const NormalizeSpec spec = from_plain(*plain);
    const NormalizeGrid grid = make_normalize_grid(spec);
    visit_normalize_kernel(spec, [&](auto kernel) {
      for (size_t thread = 0; thread < grid.threads(); ++thread) kernel(grid, in, out, thread);
    });
    return 0;
  });
}

FASTLOADER_EXPORT int cpu_augment(const PlainAugmentSpec* plain, const void* records,
                                  const uint8_t* in, void* out) {
  return guarded([&] {
    augment(from_plain(*plain), records, in, out);
    return 0;
  });
}

/// What the 256 bytes become by the reference of the native tests, as bits of the type.
FASTLOADER_EXPORT void reference_table(float scale, float bias, int type, uint32_t* table) {
  for (int x = 0; x < 256; ++x) {
    table[x] = reference_bits(exact_fma(static_cast<uint8_t>(x), scale, bias),
                              static_cast<FloatType>(type));
  }
}

/// A random case of the native tests, with what must come out. The buffers live until the next
/// call.
struct PlainCase {
  uint64_t in_batch, records_size, in_size, out_size;
  const void *records, *in, *out;
};
FASTLOADER_EXPORT int augment_case(const PlainAugmentSpec* plain, uint32_t seed,
                                   PlainCase* result) {
  return guarded([&] {
    static AugmentCase test;
    static std::vector<uint8_t> records;
    std::mt19937 random(seed);
    const AugmentSpec spec = from_plain(*plain);
    test = make_augment_case(spec.normalize, spec.fill, spec.blend, spec.max_boxes, random);
    records = test.records();
    *result = {test.spec.in_batch, records.size(), test.in.size(), test.out.size(),
               records.data(),     test.in.data(), test.out.data()};
    return 0;
  });
}

FASTLOADER_EXPORT void c_fmaf(const float* a, const float* b, const float* c, float* out,
                              size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = std::fma(a[i], b[i], c[i]);
}

FASTLOADER_EXPORT void c_round_to(int type, const float* in, uint16_t* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = type == static_cast<int>(FloatType::kFloat16) ? round_to<FloatType::kFloat16>(in[i])
                                                           : round_to<FloatType::kBFloat16>(in[i]);
  }
}
