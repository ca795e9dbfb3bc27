#include "image/ops/kernels/warp.h"

#include <cmath>
#include <cstring>

#include "image/ops/copy_pixels.h"
#include "image/ops/kernels/warp_taps.h"

namespace fastloader {
namespace {

void widen(const uint8_t* rgb, size_t pixels, uint8_t* to) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* pixel = rgb + i * 3;
    const uint32_t bytes = static_cast<uint32_t>(pixel[0]) | static_cast<uint32_t>(pixel[1]) << 8 |
                           static_cast<uint32_t>(pixel[2]) << 16;
    // Red, green and blue in this order, whatever the machine's.
    for (size_t c = 0; c < WarpSource::kPixel; ++c) {
      to[i * WarpSource::kPixel + c] = static_cast<uint8_t>(bytes >> (8 * c));
    }
  }
}

/// Floor of a coordinate that is at least -0.5.
int32_t floor_of(double coordinate) {
  return coordinate < 0.0 ? -1 : static_cast<int32_t>(coordinate);
}

// Where a fraction is 0, so is everything that it multiplies, and the sum keeps its value: shears
// and moves along one axis need no more than that.

struct Bilinear {
  static void mix(const WarpSource& from, int32_t x, int32_t y, double dx, double dy, uint8_t* to) {
    const uint8_t* pixels = from.at(x, y);
    const Mixture v1 = bilinear(pixels, dx);
    if (dy == 0) return store(v1, to);
    store(bilinear(v1, bilinear(pixels + from.stride, dx), dy), to);
  }
};

struct Bicubic {
  static void mix(const WarpSource& from, int32_t x, int32_t y, double dx, double dy, uint8_t* to) {
    const size_t stride = from.stride;
    const uint8_t* pixels = from.at(x - 1, y - 1);
    if (dy == 0) return store(bicubic(pixels + stride, dx), to);
    if (dx == 0) {
      pixels += WarpSource::kPixel;
      return store(bicubic(mixture(load_pair(pixels)), mixture(load_pair(pixels + stride)),
                           mixture(load_pair(pixels + 2 * stride)),
                           mixture(load_pair(pixels + 3 * stride)), dy),
                   to);
    }
    store(bicubic(bicubic(pixels, dx), bicubic(pixels + stride, dx),
                  bicubic(pixels + 2 * stride, dx), bicubic(pixels + 3 * stride, dx), dy),
          to);
  }
};

template <class Filter>
void fetch(const WarpSource& from, const double* xs, const double* ys, size_t count, uint8_t* to) {
  for (size_t i = 0; i < count; ++i, to += 3) {
    double x = xs[i];
    double y = ys[i];
    if (x < 0.0 || x >= from.width || y < 0.0 || y >= from.height) {
      copy_pixel(from.fill, to);
      continue;
    }
    if (std::isnan(x) || std::isnan(y)) {
      // From no place. Sums with NaN are NaN, and x86-64 makes a 0 of it.
      std::memset(to, 0, 3);
      continue;
    }
    x -= 0.5;
    y -= 0.5;
    const int32_t from_x = floor_of(x);
    const int32_t from_y = floor_of(y);
    Filter::mix(from, from_x, from_y, x - from_x, y - from_y, to);
  }
}

}  // namespace

const WarpKernels kWarpScalar = {widen, fetch<Bilinear>, fetch<Bicubic>};

}  // namespace fastloader
