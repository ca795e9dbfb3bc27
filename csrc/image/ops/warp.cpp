#include "image/ops/warp.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/ops/copy_pixels.h"
#include "image/ops/families.h"
#include "image/ops/kernels/warp.h"

namespace fastloader {
namespace {

/// Where the pixels of a row come from.
struct AffineRow {
  double a0, a1_y, a2;
  double a3, a4_y, a5;

  Point at(double x) const { return {a0 * x + a1_y + a2, a3 * x + a4_y + a5}; }
};

struct AffineMap {
  std::array<double, 6> a;

  AffineRow row(double y) const { return {a[0], a[1] * y, a[2], a[3], a[4] * y, a[5]}; }
};

struct PerspectiveRow {
  double a0, a1_y, a2;
  double a3, a4_y, a5;
  double a6, a7_y;

  Point at(double x) const {
    const double divisor = a6 * x + a7_y + 1;
    return {(a0 * x + a1_y + a2) / divisor, (a3 * x + a4_y + a5) / divisor};
  }
};

struct PerspectiveMap {
  std::array<double, 8> a;

  PerspectiveRow row(double y) const {
    return {a[0], a[1] * y, a[2], a[3], a[4] * y, a[5], a[6], a[7] * y};
  }
};

/// Four bytes a pixel, in the canvas's scratch.
WarpSource bordered(const Fill& fill, Canvas& canvas) {
  constexpr size_t kPixel = WarpSource::kPixel;
  constexpr size_t kBorder = WarpSource::kBorder;
  const size_t width = canvas.size().width;
  const size_t height = canvas.size().height;
  const size_t stride = (width + 2 * kBorder) * kPixel;
  uint8_t* to = canvas.scratch((height + 2 * kBorder) * stride);
  uint8_t* const top = to + kBorder * stride;
  uint8_t* row = top;
  const uint8_t* from = canvas.pixels();
  for (size_t y = 0; y < height; ++y, from += width * Canvas::kRgb, row += stride) {
    canvas.throw_if_stopped();
    uint8_t* first = row + kBorder * kPixel;
    canvas.isa().warp->widen(from, width, first);
    for (size_t x = 0; x < kBorder; ++x) {
      std::memcpy(row + x * kPixel, first, kPixel);
      std::memcpy(first + (width + x) * kPixel, first + (width - 1) * kPixel, kPixel);
    }
  }
  for (size_t y = 0; y < kBorder; ++y) {
    std::memcpy(to + y * stride, top, stride);
    std::memcpy(row + y * stride, row - stride, stride);
  }
  WarpSource source{
      top + kBorder * kPixel, stride, static_cast<double>(width), static_cast<double>(height), {}};
  std::copy_n(fill.rgb, Canvas::kRgb, source.fill);
  return source;
}

template <class Map>
void warp_mixed(const Map& map, WarpKernel kernel, const Fill& fill, const ImageSize& size,
                Canvas& canvas) {
  constexpr size_t kSome = 64;
  const WarpSource source = bordered(fill, canvas);
  uint8_t* to = canvas.other(size);
  double from_x[kSome];
  double from_y[kSome];
  for (size_t y = 0; y < size.height; ++y) {
    canvas.throw_if_stopped();
    const auto row = map.row(static_cast<double>(y) + 0.5);
    for (size_t x = 0; x < size.width; x += kSome) {
      const size_t count = std::min(kSome, size.width - x);
      for (size_t i = 0; i < count; ++i) {
        const Point p = row.at(static_cast<double>(static_cast<int32_t>(x + i)) + 0.5);
        from_x[i] = p.x;
        from_y[i] = p.y;
      }
      kernel(source, from_x, from_y, count, to);
      to += count * Canvas::kRgb;
    }
  }
}

void warp_nearest(const AffineMap& map, const Fill& fill, const ImageSize& size, Canvas& canvas) {
  warp_affine_nearest(map.a, fill, size, canvas);
}

void warp_nearest(const PerspectiveMap& map, const Fill& fill, const ImageSize& size,
                  Canvas& canvas) {
  const uint8_t* from = canvas.pixels();
  const size_t row_bytes = canvas.row_bytes();
  const auto width = static_cast<int32_t>(canvas.size().width);
  const auto height = static_cast<int32_t>(canvas.size().height);
  uint8_t* to = canvas.other(size);
  for (size_t y = 0; y < size.height; ++y) {
    canvas.throw_if_stopped();
    const auto row = map.row(static_cast<double>(y) + 0.5);
    for (size_t x = 0; x < size.width; ++x, to += Canvas::kRgb) {
      const Point p = row.at(static_cast<double>(x) + 0.5);
      const bool inside = lies_in(p.x, width) && lies_in(p.y, height);
      copy_pixel(inside ? from + static_cast<size_t>(p.y) * row_bytes +
                              static_cast<size_t>(p.x) * Canvas::kRgb
                        : fill.rgb,
                 to);
    }
  }
}

template <class Map>
void warp(const Map& map, Resampling resampling, const Fill& fill, const ImageSize& size,
          Canvas& canvas) {
  switch (resampling) {
    case Resampling::kNearest:
      warp_nearest(map, fill, size, canvas);
      break;
    case Resampling::kBilinear:
      warp_mixed(map, canvas.isa().warp->bilinear, fill, size, canvas);
      break;
    case Resampling::kBicubic:
      warp_mixed(map, canvas.isa().warp->bicubic, fill, size, canvas);
      break;
  }
  canvas.turn();
}

}  // namespace

void check_resampling(const char* operation, double number) {
  if (number == 0 || number == 2 || number == 3) return;
  throw InvalidArgument(std::string(operation) +
                        ": resampling must be 0 (nearest), 2 (bilinear) or 3 (bicubic), not " +
                        std::to_string(number));
}

Resampling resampling_of(double number) {
  return static_cast<Resampling>(static_cast<int>(number));
}

void warp_affine(const std::array<double, 6>& coefficients, Resampling resampling, const Fill& fill,
                 const ImageSize& size, Canvas& canvas) {
  warp(AffineMap{coefficients}, resampling, fill, size, canvas);
}

void check_affine(const std::vector<double>& numbers) {
  check_resampling("affine", numbers[6]);
  check_fill("affine", numbers, 7);
}

void affine(const std::vector<double>& numbers, Canvas& canvas) {
  AffineMap map;
  std::copy_n(numbers.begin(), map.a.size(), map.a.begin());
  const ImageSize size = canvas.size();
  warp(map, resampling_of(numbers[6]), fill_of(numbers, 7), size, canvas);
}

void check_perspective(const std::vector<double>& numbers) {
  check_resampling("perspective", numbers[8]);
  check_fill("perspective", numbers, 9);
}

void perspective(const std::vector<double>& numbers, Canvas& canvas) {
  PerspectiveMap map;
  std::copy_n(numbers.begin(), map.a.size(), map.a.begin());
  const ImageSize size = canvas.size();
  warp(map, resampling_of(numbers[8]), fill_of(numbers, 9), size, canvas);
}

}  // namespace fastloader
