#include "image/dispatch.h"

#include <atomic>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.h"
#include "image/jpeg/kernels/entropy.h"
#include "image/jpeg/kernels/pixels.h"
#include "image/jpeg/kernels/progressive.h"
#include "image/normalize/runs.h"
#include "image/ops/kernels/colour.h"
#include "image/ops/kernels/filter.h"
#include "image/ops/kernels/warp.h"
#include "image/resize/kernels.h"

namespace fastloader {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports asks the operating system (XGETBV) as well as the CPU.
bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

// Ice Lake, Zen 4 and later: permuting single bytes across a whole register, products of 4 bytes.
bool has_avx512vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vnni");
}

// Not __builtin_cpu_supports("f16c"): GCC 10 and Clang before 18 don't know the name. F16C needs
// no more of the operating system than AVX2 does.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("popcnt") && has_f16c();
}

/// AMD's CPUs before Zen 3 take pdep apart into a loop.
bool has_fast_pdep() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  constexpr unsigned kHygon = 0x6f677948;  // "Hygo", which makes the same
  if (ebx != signature_AMD_ebx && ebx != kHygon) return true;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  const unsigned family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  constexpr unsigned kZen3 = 0x19;
  return family >= kZen3;
}

bool has_avx2_and_fast_pdep() { return has_avx2() && has_fast_pdep(); }

bool has_avx2_and_slow_pdep() { return has_avx2() && !has_fast_pdep(); }
#endif

bool always() { return true; }

constexpr Isa kIsas[] = {
#if defined(__x86_64__)
    {"avx512vnni", has_avx512vnni, normalize_avx512, &kResizeAvx512Vnni, &kColourAvx2, &kFilterAvx2,
     &kWarpAvx2, &kJpegEntropyAvx2, &kJpegPixelsAvx512Vbmi, &kJpegProgressiveBmi2},
    {"avx512", has_avx512, normalize_avx512, &kResizeAvx2, &kColourAvx2, &kFilterAvx2, &kWarpAvx2,
     &kJpegEntropyAvx2, &kJpegPixelsAvx512, &kJpegProgressiveBmi2},
    // Of these two, a CPU has one.
    {"avx2", has_avx2_and_fast_pdep, normalize_avx2, &kResizeAvx2, &kColourAvx2, &kFilterAvx2,
     &kWarpAvx2, &kJpegEntropyAvx2, &kJpegPixelsAvx2, &kJpegProgressiveBmi2},
    {"avx2", has_avx2_and_slow_pdep, normalize_avx2, &kResizeAvx2, &kColourAvx2, &kFilterAvx2,
     &kWarpAvx2, &kJpegEntropyAvx2, &kJpegPixelsAvx2, &kJpegProgressiveAvx2},
#elif defined(__aarch64__)
    {"neon", always, normalize_neon, &kResizeScalar, &kColourScalar, &kFilterScalar, &kWarpScalar,
     &kJpegEntropyNeon, &kJpegPixelsNeon, &kJpegProgressiveNeon},
#endif
    {"scalar", always, normalize_scalar, &kResizeScalar, &kColourScalar, &kFilterScalar,
     &kWarpScalar, &kJpegEntropyScalar, &kJpegPixelsScalar, &kJpegProgressiveScalar},
};

const Isa* find_supported(const std::string& name) {
  for (const Isa& isa : kIsas) {
    if (name == isa.name && isa.supported()) return &isa;
  }
  return nullptr;
}

std::string joined_names() {
  std::string joined;
  for (const std::string& name : available_isa_names()) {
    joined += (joined.empty() ? "" : ", ") + name;
  }
  return joined;
}

const Isa& choose_isa() {
  const char* forced = std::getenv("FASTLOADER_FORCE_ISA");
  if (forced != nullptr && *forced != '\0') {
    const Isa* isa = find_supported(forced);
    if (isa == nullptr) {
      throw InvalidArgument(std::string("FASTLOADER_FORCE_ISA=") + forced +
                            " is not available on this machine; available: " + joined_names());
    }
    return *isa;
  }
  for (const Isa& isa : kIsas) {
    if (isa.supported()) return isa;
  }
  std::abort();  // scalar is always there
}

std::atomic<const Isa*> chosen_isa{nullptr};

}  // namespace

const Isa& active_isa() {
  const Isa* isa = chosen_isa.load(std::memory_order_acquire);
  if (isa != nullptr) return *isa;
  // Threads that come here together choose the same, and the first choice is kept for good.
  const Isa* mine = &choose_isa();
  if (chosen_isa.compare_exchange_strong(isa, mine, std::memory_order_acq_rel)) return *mine;
  return *isa;
}

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (const Isa& isa : kIsas) {
    if (isa.supported()) names.emplace_back(isa.name);
  }
  return names;
}

const Isa& isa_by_name(const std::string& name) {
  const Isa* isa = find_supported(name);
  if (isa == nullptr) {
    throw InvalidArgument("instruction set '" + name +
                          "' is not available on this machine; available: " + joined_names());
  }
  return *isa;
}

void normalize_with_isa(const std::string& name, const NormalizeSpec& spec, const uint8_t* in,
                        void* out) {
  validate(spec);
  isa_by_name(name).normalize(spec, in, out);
}

}  // namespace fastloader
