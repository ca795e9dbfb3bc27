#include "image/resize/axis.h"

#include <algorithm>
#include <cmath>

namespace fastloader {
namespace {

struct BoxFilter {
  static constexpr double kSupport = 0.5;
  double operator()(double x) const { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};

struct BilinearFilter {
  static constexpr double kSupport = 1.0;
  double operator()(double x) const { return std::max(1.0 - std::fabs(x), 0.0); }
};

/// Keys' cubic convolution with a = -0.5.
struct BicubicFilter {
  static constexpr double kSupport = 2.0;
  double operator()(double x) const {
    constexpr double a = -0.5;
    x = std::fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
  }
};

// M_PI, which is no part of C++.
constexpr double kPi = 3.14159265358979323846;

struct HammingFilter {
  static constexpr double kSupport = 1.0;
  double operator()(double x) const {
    x = std::fabs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= kPi;
    // Pillow writes these two numbers as floats.
    constexpr double kMean = 0.54f;
    constexpr double kSwing = 0.46f;
    return std::sin(x) / x * (kMean + kSwing * std::cos(x));
  }
};

/// A sinc function under the middle of another one, which is three times as wide.
struct LanczosFilter {
  static constexpr double kSupport = 3.0;
  double operator()(double x) const { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

 private:
  static double sinc(double x) {
    if (x == 0.0) return 1.0;
    x *= kPi;
    return std::sin(x) / x;
  }
};

/// Half away from zero.
int32_t to_fixed_point(double weight) {
  return static_cast<int32_t>(weight * (1 << kResizeBits) + (weight < 0 ? -0.5 : 0.5));
}

size_t clamped(double position, size_t limit) {
  return position <= 0 ? 0 : std::min(static_cast<size_t>(position), limit);
}

}  // namespace

template <class Filter>
void ResizeAxis::compute(const Filter& filter) {
  const size_t made = geometry_.count;
  // The difference is rounded to float first, as Pillow's box is.
  const double scale =
      static_cast<double>(geometry_.end - geometry_.begin) / static_cast<double>(geometry_.out);
  const double filter_scale = std::max(scale, 1.0);
  const double inverse = 1.0 / filter_scale;
  const double support = Filter::kSupport * filter_scale;
  const size_t most = static_cast<size_t>(std::ceil(support)) * 2 + 1;
  stride_ = (most + kTapMultiple - 1) / kTapMultiple * kTapMultiple;
  max_count_ = 0;
  uint32_t* firsts = first_.require(made);
  uint32_t* counts = count_.require(made);
  double* weights = weights_.require(stride_);
  int32_t* fixed = coefficients_.require(made * stride_);

  size_t in_end = 0;
  in_first_ = geometry_.in;
  for (size_t i = 0; i < made; ++i, fixed += stride_) {
    const double center = static_cast<double>(geometry_.begin) +
                          (static_cast<double>(geometry_.first + i) + 0.5) * scale;
    const size_t first = clamped(center - support + 0.5, geometry_.in);
    const size_t end = clamped(center + support + 0.5, geometry_.in);
    const size_t count = end - first;
    double sum = 0;
    for (size_t k = 0; k < count; ++k) {
      weights[k] = filter((static_cast<double>(k + first) - center + 0.5) * inverse);
      sum += weights[k];
    }
    // Not a multiplication by 1 / sum, which rounds differently.
    const double divisor = sum == 0 ? 1 : sum;
    for (size_t k = 0; k < count; ++k) fixed[k] = to_fixed_point(weights[k] / divisor);
    for (size_t k = count; k < stride_; ++k) fixed[k] = 0;
    firsts[i] = static_cast<uint32_t>(first);
    counts[i] = static_cast<uint32_t>(count);
    max_count_ = std::max(max_count_, count);
    in_first_ = std::min(in_first_, first);
    in_end = std::max(in_end, end);
  }
  in_ = in_end - in_first_;
  for (size_t i = 0; i < made; ++i) firsts[i] -= static_cast<uint32_t>(in_first_);
}

bool ResizeAxis::set(const AxisGeometry& geometry) {
  if (ready_ && geometry == geometry_) return false;
  ready_ = false;  // should an allocation throw
  geometry_ = geometry;
  switch (geometry.filter) {
    case ResizeFilter::kBox:
      compute(BoxFilter{});
      break;
    case ResizeFilter::kBilinear:
      compute(BilinearFilter{});
      break;
    case ResizeFilter::kBicubic:
      compute(BicubicFilter{});
      break;
    case ResizeFilter::kHamming:
      compute(HammingFilter{});
      break;
    case ResizeFilter::kLanczos:
      compute(LanczosFilter{});
      break;
  }
  ready_ = true;
  return true;
}

}  // namespace fastloader
