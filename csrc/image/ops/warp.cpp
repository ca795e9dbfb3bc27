#include "image/ops/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "image/ops/copy_pixels.h"
#include "image/ops/warp_nearest.h"
#include "image/ops/warp_taps.h"

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

/// The picture as pixels of 4 bytes, surrounded by copies of its outermost pixels: those are what
/// a filter takes that reaches beyond the picture.
class Bordered {
 public:
  static constexpr size_t kPixel = 4;
  static constexpr size_t kBorder = 2;

  explicit Bordered(Canvas& canvas) : width_(canvas.size().width), height_(canvas.size().height) {
    stride_ = (width_ + 2 * kBorder) * kPixel;
    uint8_t* to = canvas.scratch((height_ + 2 * kBorder) * stride_);
    first_ = to + kBorder * stride_ + kBorder * kPixel;
    const uint8_t* from = canvas.pixels();
    uint8_t* row = to + kBorder * stride_;
    for (size_t y = 0; y < height_; ++y, from += width_ * Canvas::kRgb, row += stride_) {
      copy_row(from, row);
    }
    const uint8_t* top = to + kBorder * stride_;
    const uint8_t* bottom = row - stride_;
    for (size_t y = 0; y < kBorder; ++y) {
      std::memcpy(to + y * stride_, top, stride_);
      std::memcpy(row + y * stride_, bottom, stride_);
    }
  }

  /// Pixels from -2 to the last but 2 beyond the edges.
  const uint8_t* at(int32_t x, int32_t y) const {
    return first_ + y * static_cast<ptrdiff_t>(stride_) + x * static_cast<ptrdiff_t>(kPixel);
  }
  size_t stride() const { return stride_; }
  double width() const { return static_cast<double>(width_); }
  double height() const { return static_cast<double>(height_); }

 private:
  void copy_row(const uint8_t* from, uint8_t* row) const {
    uint8_t* to = row + kBorder * kPixel;
    for (size_t x = 0; x < width_; ++x) {
      const uint8_t* pixel = from + x * Canvas::kRgb;
      const uint32_t bytes = static_cast<uint32_t>(pixel[0]) |
                             static_cast<uint32_t>(pixel[1]) << 8 |
                             static_cast<uint32_t>(pixel[2]) << 16;
      store_pixel(bytes, to + x * kPixel);
    }
    for (size_t x = 0; x < kBorder; ++x) {
      std::memcpy(row + x * kPixel, to, kPixel);
      std::memcpy(to + (width_ + x) * kPixel, to + (width_ - 1) * kPixel, kPixel);
    }
  }

  /// Red, green and blue in this order, whatever the machine's.
  static void store_pixel(uint32_t bytes, uint8_t* to) {
    for (size_t c = 0; c < kPixel; ++c) to[c] = static_cast<uint8_t>(bytes >> (8 * c));
  }

  size_t width_;
  size_t height_;
  size_t stride_;
  const uint8_t* first_;
};

/// Floor of a coordinate that is at least -0.5.
int32_t floor_of(double coordinate) {
  return coordinate < 0.0 ? -1 : static_cast<int32_t>(coordinate);
}

// Where a fraction is 0, so is everything that it multiplies, and the sum keeps its value: shears
// and moves along one axis need no more than that.

struct Bilinear {
  static void mix(const Bordered& from, int32_t x, int32_t y, double dx, double dy, uint8_t* to) {
    const uint8_t* pixels = from.at(x, y);
    const Mixture v1 = bilinear(pixels, dx);
    if (dy == 0) return store(v1, to);
    store(bilinear(v1, bilinear(pixels + from.stride(), dx), dy), to);
  }
};

struct Bicubic {
  static void mix(const Bordered& from, int32_t x, int32_t y, double dx, double dy, uint8_t* to) {
    const size_t stride = from.stride();
    const uint8_t* pixels = from.at(x - 1, y - 1);
    if (dy == 0) return store(bicubic(pixels + stride, dx), to);
    if (dx == 0) {
      pixels += Bordered::kPixel;
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

template <class Filter, class Map>
void warp_mixed(const Map& map, const Fill& fill, const ImageSize& size, Canvas& canvas) {
  const Bordered from(canvas);
  const double width = from.width();
  const double height = from.height();
  uint8_t* to = canvas.other(size);
  for (size_t y = 0; y < size.height; ++y) {
    const auto row = map.row(static_cast<double>(y) + 0.5);
    for (size_t x = 0; x < size.width; ++x, to += Canvas::kRgb) {
      Point p = row.at(static_cast<double>(x) + 0.5);
      if (p.x < 0.0 || p.x >= width || p.y < 0.0 || p.y >= height) {
        copy_pixel(fill.rgb, to);
        continue;
      }
      if (std::isnan(p.x) || std::isnan(p.y)) {
        // From no place, which Pillow does not take for one outside. Sums with NaN are NaN, and
        // x86-64 makes a 0 of it.
        std::memset(to, 0, Canvas::kRgb);
        continue;
      }
      p.x -= 0.5;
      p.y -= 0.5;
      const int32_t from_x = floor_of(p.x);
      const int32_t from_y = floor_of(p.y);
      Filter::mix(from, from_x, from_y, p.x - from_x, p.y - from_y, to);
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
      warp_mixed<Bilinear>(map, fill, size, canvas);
      break;
    case Resampling::kBicubic:
      warp_mixed<Bicubic>(map, fill, size, canvas);
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
