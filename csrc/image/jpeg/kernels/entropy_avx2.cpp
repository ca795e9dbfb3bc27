#include "image/jpeg/kernels/entropy_tables.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTLOADER_BMI2 __attribute__((target("avx2,bmi,bmi2")))

namespace fastloader {
namespace {

FASTLOADER_BMI2 size_t decode(McuRun& run, size_t mcus) { return TableDecoder::decode(run, mcus); }

FASTLOADER_BMI2 size_t skip(McuRun& run, size_t mcus) { return TableDecoder::skip(run, mcus); }

FASTLOADER_BMI2 Unstuffed unstuff(const uint8_t* in, const uint8_t* in_end, uint8_t* out,
                                  uint8_t* out_end) {
  constexpr ptrdiff_t kVector = 32;
  const __m256i stuffed = _mm256_set1_epi8(-1);
  while (out < out_end) {
    while (in_end - in >= kVector && out < out_end) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
      const auto found =
          static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, stuffed)));
      const ptrdiff_t plain = found == 0 ? kVector : __builtin_ctz(found);
      in += plain;
      out += plain;
      if (found != 0) break;
    }
    if (out >= out_end) break;
    while (in < in_end && *in != 0xff && out < out_end) *out++ = *in++;
    if (in == in_end) return {in, out, true};
    if (*in != 0xff) continue;
    if (in + 1 == in_end || in[1] != 0) return {in, out, true};
    *out++ = 0xff;
    in += 2;
  }
  return {in, out, false};
}

}  // namespace

const JpegEntropyKernels kJpegEntropyAvx2 = {unstuff, decode, skip};

}  // namespace fastloader

#endif
