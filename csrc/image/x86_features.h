#pragma once

#if defined(__x86_64__)

namespace fastloader {

/// Which instructions this processor has and the operating system saves the registers of.
///
/// Not __builtin_cpu_supports: the compiler's runtime library answers for it, and zig's always says
/// no.
struct X86Features {
  bool popcnt = false;
  bool bmi = false;
  bool bmi2 = false;
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512vbmi = false;
  bool avx512vnni = false;
  /// AMD's processors before Zen 3 take pdep apart into a loop.
  bool fast_pdep = false;
};

X86Features x86_features();

}  // namespace fastloader

#endif
