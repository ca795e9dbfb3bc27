#include "image/jpeg/kernels/pixels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "image/jpeg/kernels/dct.h"
#include "image/jpeg/kernels/ycc.h"

namespace fastloader {
namespace {

constexpr size_t kSamples = 16;

/// 16 bits for each of 16 samples.
struct Wide {
  uint16x8_t low;
  uint16x8_t high;
};

/// 3 * near + far
inline Wide weighed(uint8x16_t near, uint8x16_t far) {
  const uint8x16_t three = vdupq_n_u8(3);
  return {vaddw_u8(vmull_u8(vget_low_u8(near), vget_low_u8(three)), vget_low_u8(far)),
          vaddw_high_u8(vmull_high_u8(near, three), far)};
}

inline Wide weighed(const Wide& near, const Wide& far) {
  return {vmlaq_n_u16(far.low, near.low, 3), vmlaq_n_u16(far.high, near.high, 3)};
}

template <int kShift>
inline uint8x16_t divided(const Wide& sums, uint16x8_t bias) {
  return vshrn_high_n_u16(vshrn_n_u16(vaddq_u16(sums.low, bias), kShift),
                          vaddq_u16(sums.high, bias), kShift);
}

void widen(const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, in += kSamples) {
    const uint8x16_t here = vld1q_u8(in);
    const uint8x16_t even = divided<2>(weighed(here, vld1q_u8(in - 1)), vdupq_n_u16(1));
    const uint8x16_t odd = divided<2>(weighed(here, vld1q_u8(in + 1)), vdupq_n_u16(2));
    const uint8x16x2_t both = {{even, odd}};
    vst2q_u8(out + 2 * i, both);
  }
}

void widen_between(const uint8_t* near, const uint8_t* far, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; i += kSamples, near += kSamples, far += kSamples) {
    const Wide here = weighed(vld1q_u8(near), vld1q_u8(far));
    const Wide before = weighed(vld1q_u8(near - 1), vld1q_u8(far - 1));
    const Wide after = weighed(vld1q_u8(near + 1), vld1q_u8(far + 1));
    const uint8x16_t even = divided<4>(weighed(here, before), vdupq_n_u16(8));
    const uint8x16_t odd = divided<4>(weighed(here, after), vdupq_n_u16(7));
    const uint8x16x2_t both = {{even, odd}};
    vst2q_u8(out + 2 * i, both);
  }
}

void between(const uint8_t* near, const uint8_t* far, size_t count, unsigned bias, uint8_t* out) {
  const uint16x8_t biases = vdupq_n_u16(static_cast<uint16_t>(bias));
  for (size_t i = 0; i < count; i += kSamples) {
    vst1q_u8(out + i, divided<2>(weighed(vld1q_u8(near + i), vld1q_u8(far + i)), biases));
  }
}

/// Of 8 pixels.
inline uint8x8x3_t colours_of(uint8x8_t y_bytes, uint8x8_t cb_bytes, uint8x8_t cr_bytes) {
  const uint8x8_t middle = vdup_n_u8(128);
  const int16x8_t y = vreinterpretq_s16_u16(vmovl_u8(y_bytes));
  const int16x8_t cb = vreinterpretq_s16_u16(vsubl_u8(cb_bytes, middle));
  const int16x8_t cr = vreinterpretq_s16_u16(vsubl_u8(cr_bytes, middle));
  const int16x8_t red = vqrdmulhq_n_s16(cr, jpeg_ycc::kRedOfCr);
  const int16x8_t blue = vqrdmulhq_n_s16(cb, jpeg_ycc::kBlueOfCb);
  const int32x4_t green_low = vmlal_n_s16(vmull_n_s16(vget_low_s16(cb), jpeg_ycc::kGreenOfCb),
                                          vget_low_s16(cr), jpeg_ycc::kGreenOfCr);
  const int32x4_t green_high =
      vmlal_high_n_s16(vmull_high_n_s16(cb, jpeg_ycc::kGreenOfCb), cr, jpeg_ycc::kGreenOfCr);
  const int16x8_t green = vrshrn_high_n_s32(vrshrn_n_s32(green_low, jpeg_ycc::kShortFractionBits),
                                            green_high, jpeg_ycc::kShortFractionBits);
  return {{vqmovun_s16(vaddq_s16(vaddq_s16(y, cr), red)), vqmovun_s16(vaddq_s16(y, green)),
           vqmovun_s16(vaddq_s16(vaddq_s16(y, vaddq_s16(cb, cb)), blue))}};
}

void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                uint8_t* rgb) {
  constexpr size_t kPixels = 8;
  for (size_t i = 0; i < count; i += kPixels, rgb += 3 * kPixels) {
    vst3_u8(rgb, colours_of(vld1_u8(y + i), vld1_u8(cb + i), vld1_u8(cr + i)));
  }
}

void grey_to_rgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; i += kSamples, rgb += 3 * kSamples) {
    const uint8x16_t grey = vld1q_u8(y + i);
    const uint8x16x3_t equal = {{grey, grey, grey}};
    vst3q_u8(rgb, equal);
  }
}

}  // namespace

const JpegPixelKernels kJpegPixelsNeon = {inverse_dct_neon, widen,      widen_between,
                                          between,          ycc_to_rgb, grey_to_rgb};

}  // namespace fastloader

#endif
