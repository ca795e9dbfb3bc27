#include "image/x86_features.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace fastloader {
namespace {

struct Leaf {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

/// All zero if the processor has no such leaf.
Leaf leaf(unsigned number) {
  Leaf found;
  __get_cpuid_count(number, 0, &found.eax, &found.ebx, &found.ecx, &found.edx);
  return found;
}

/// Which registers the operating system saves: XCR0. Only where OSXSAVE is set.
uint64_t saved_registers() {
  uint32_t low = 0;
  uint32_t high = 0;
  // The intrinsic _xgetbv needs its file compiled with -mxsave.
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool has(unsigned word, int bit) { return (word >> bit & 1) != 0; }

}  // namespace

// The numbers of bits are those of Intel's manual, volume 2, CPUID.
X86Features x86_features() {
  const Leaf first = leaf(1);
  const Leaf seventh = leaf(7);
  const uint64_t saved = has(first.ecx, 27) ? saved_registers() : 0;
  constexpr uint64_t kYmm = 0x6;
  constexpr uint64_t kZmm = 0xe6;  // and the masks
  const bool ymm = (saved & kYmm) == kYmm && has(first.ecx, 28);
  const bool zmm = ymm && (saved & kZmm) == kZmm;

  X86Features found;
  found.popcnt = has(first.ecx, 23);
  found.bmi = has(seventh.ebx, 3);
  found.bmi2 = has(seventh.ebx, 8);
  found.avx2 = ymm && has(seventh.ebx, 5);
  found.fma = ymm && has(first.ecx, 12);
  found.f16c = ymm && has(first.ecx, 29);
  found.avx512f = zmm && has(seventh.ebx, 16);
  found.avx512bw = zmm && has(seventh.ebx, 30);
  found.avx512vl = zmm && has(seventh.ebx, 31);
  found.avx512vbmi = zmm && has(seventh.ecx, 1);
  found.avx512vnni = zmm && has(seventh.ecx, 11);

  const unsigned vendor = leaf(0).ebx;
  constexpr unsigned kHygon = 0x6f677948;  // "Hygo", which makes what AMD makes
  const unsigned family = (first.eax >> 8 & 0xf) + (first.eax >> 20 & 0xff);
  constexpr unsigned kZen3 = 0x19;
  found.fast_pdep = (vendor != signature_AMD_ebx && vendor != kHygon) || family >= kZen3;
  return found;
}

}  // namespace fastloader

#endif
