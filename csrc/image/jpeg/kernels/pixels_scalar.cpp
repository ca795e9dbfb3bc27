#include <algorithm>

#include "image/jpeg/kernels/dct.h"
#include "image/jpeg/kernels/ycc.h"

namespace fastloader {
namespace {

void widen(const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const int before = in[static_cast<ptrdiff_t>(i) - 1];
    const int here = 3 * in[i];
    // The two are rounded differently, so that rounding makes a picture neither brighter nor
    // darker; below likewise.
    out[2 * i] = static_cast<uint8_t>((here + before + 1) >> 2);
    out[2 * i + 1] = static_cast<uint8_t>((here + in[i + 1] + 2) >> 2);
  }
}

void widen_between(const uint8_t* near, const uint8_t* far, size_t count, uint8_t* out) {
  const auto sum = [=](ptrdiff_t i) { return 3 * near[i] + far[i]; };
  for (ptrdiff_t i = 0; i < static_cast<ptrdiff_t>(count); ++i) {
    out[2 * i] = static_cast<uint8_t>((3 * sum(i) + sum(i - 1) + 8) >> 4);
    out[2 * i + 1] = static_cast<uint8_t>((3 * sum(i) + sum(i + 1) + 7) >> 4);
  }
}

void between(const uint8_t* near, const uint8_t* far, size_t count, unsigned bias, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<uint8_t>((3u * near[i] + far[i] + bias) >> 2);
  }
}

uint8_t to_byte(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                uint8_t* rgb) {
  for (size_t i = 0; i < count; ++i) {
    const int blueness = cb[i] - 128;
    const int redness = cr[i] - 128;
    rgb[3 * i] = to_byte(y[i] + jpeg_ycc::red_above_y(redness));
    rgb[3 * i + 1] = to_byte(y[i] + jpeg_ycc::green_above_y(blueness, redness));
    rgb[3 * i + 2] = to_byte(y[i] + jpeg_ycc::blue_above_y(blueness));
  }
}

void grey_to_rgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; ++i) std::fill_n(rgb + 3 * i, 3, y[i]);
}

}  // namespace

const JpegPixelKernels kJpegPixelsScalar = {inverse_dct_scalar, widen,      widen_between, between,
                                            ycc_to_rgb,         grey_to_rgb};

}  // namespace fastloader
