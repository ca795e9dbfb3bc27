#include "image/dispatch.h"

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "image/jpeg/kernels/entropy.h"
#include "image/jpeg/kernels/pixels.h"
#include "image/jpeg/kernels/progressive.h"
#include "image/normalize/runs.h"
#include "image/ops/kernels/colour.h"
#include "image/ops/kernels/filter.h"
#include "image/ops/kernels/warp.h"
#include "image/resize/kernels.h"
#include "image/x86_features.h"

namespace fastloader {
namespace {

#if defined(__x86_64__)
bool has_avx512() {
  const X86Features cpu = x86_features();
  return cpu.avx512f && cpu.avx512bw && cpu.avx512vl;
}

// Ice Lake, Zen 4 and later: permuting single bytes across a whole register, products of 4 bytes.
bool has_avx512vnni() {
  const X86Features cpu = x86_features();
  return has_avx512() && cpu.avx512vbmi && cpu.avx512vnni;
}

bool has_avx2() {
  const X86Features cpu = x86_features();
  return cpu.avx2 && cpu.fma && cpu.bmi && cpu.bmi2 && cpu.popcnt && cpu.f16c;
}

bool has_avx2_and_fast_pdep() { return has_avx2() && x86_features().fast_pdep; }

bool has_avx2_and_slow_pdep() { return has_avx2() && !x86_features().fast_pdep; }
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
