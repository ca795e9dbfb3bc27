#include "image/jpeg/kernels/entropy_tables.h"

#if defined(__aarch64__)

namespace fastloader {
namespace {

size_t decode(McuRun& run, size_t mcus) { return TableDecoder::decode(run, mcus); }

size_t skip(McuRun& run, size_t mcus) { return TableDecoder::skip(run, mcus); }

Unstuffed unstuff(const uint8_t* in, const uint8_t* in_end, uint8_t* out, uint8_t* out_end) {
  constexpr ptrdiff_t kVector = 16;
  while (out < out_end) {
    while (in_end - in >= kVector && out < out_end) {
      const uint8x16_t bytes = vld1q_u8(in);
      vst1q_u8(out, bytes);
      if (vmaxvq_u8(bytes) == 0xff) break;
      in += kVector;
      out += kVector;
    }
    // Up to the 0xff that is near, or to the end.
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

const JpegEntropyKernels kJpegEntropyNeon = {unstuff, decode, skip};

}  // namespace fastloader

#endif
