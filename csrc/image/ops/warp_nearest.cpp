#include <algorithm>
#include <cmath>
#include <cstring>

#include "image/ops/copy_pixels.h"
#include "image/ops/warp.h"

namespace fastloader {
namespace {

using Coefficients = std::array<double, 6>;

/// What goes from the picture to the result, as the numbers that Pillow counts in.
struct Job {
  const uint8_t* from;
  uint8_t* to;
  int32_t from_width;
  int32_t from_height;
  int32_t width;
  int32_t height;
  Fill fill;

  const uint8_t* from_row(int32_t y) const {
    return from + static_cast<size_t>(y) * static_cast<size_t>(from_width) * Canvas::kRgb;
  }
  const uint8_t* from_pixel(int32_t x, int32_t y) const {
    return from_row(y) + static_cast<size_t>(x) * Canvas::kRgb;
  }
  uint8_t* row(int32_t y) const {
    return to + static_cast<size_t>(y) * static_cast<size_t>(width) * Canvas::kRgb;
  }
};

uint8_t* at(uint8_t* row, int64_t x) { return row + static_cast<size_t>(x) * Canvas::kRgb; }

void fill_span(const Job& job, uint8_t* row, int64_t begin, int64_t end) {
  fill_pixels(at(row, begin), static_cast<size_t>(end - begin), job.fill);
}

// --- without rotation or shear ------------------------------------------------------------------

/// Columns and rows are chosen apart from each other. Sums grow in one direction, so that the
/// columns inside the picture have no others between them.
void scale(const Job& job, const Coefficients& a, Canvas& canvas) {
  int32_t* columns =
      reinterpret_cast<int32_t*>(canvas.scratch(static_cast<size_t>(job.width) * sizeof(int32_t)));
  double x_in = a[2] + a[0] * 0.5;
  double y_in = a[5] + a[4] * 0.5;
  int32_t begin = job.width;
  int32_t end = 0;
  bool run = true;
  for (int32_t x = 0; x < job.width; ++x) {
    if (lies_in(x_in, job.from_width)) {
      const auto column = static_cast<int32_t>(x_in);
      columns[x] = column;
      if (begin == job.width) begin = x;
      run = run && column == columns[begin] + (x - begin);
      end = x + 1;
    }
    x_in += a[0];
  }
  for (int32_t y = 0; y < job.height; ++y) {
    canvas.throw_if_stopped();
    const double y_here = y_in;
    y_in += a[4];
    uint8_t* row = job.row(y);
    if (begin >= end || !lies_in(y_here, job.from_height)) {
      fill_span(job, row, 0, job.width);
      continue;
    }
    fill_span(job, row, 0, begin);
    const auto from_y = static_cast<int32_t>(y_here);
    const uint8_t* from = job.from_row(from_y);
    if (run) {
      std::memcpy(at(row, begin), job.from_pixel(columns[begin], from_y),
                  static_cast<size_t>(end - begin) * Canvas::kRgb);
    } else {
      for (int32_t x = begin; x < end; ++x) {
        copy_pixel_and_more(from + static_cast<size_t>(columns[x]) * Canvas::kRgb, at(row, x));
      }
    }
    fill_span(job, row, end, job.width);
  }
}

// --- in fixed point -----------------------------------------------------------------------------

constexpr double kOne = 65536.0;
constexpr int kFractionBits = 16;

/// C's conversion of a double to int leaves open what becomes of numbers that have no int. Here
/// they and NaN become the least int, as on x86-64.
int32_t to_int(double value) {
  return value > -2147483649.0 && value < 2147483648.0 ? static_cast<int32_t>(value) : INT32_MIN;
}

int32_t fixed(double value) {
  const double scaled = value * kOne + 0.5;
  return to_int(scaled < 0.0 ? std::floor(scaled) : scaled);
}

/// Whether a corner of the result comes from where 16.16 bits reach.
bool corner_is_fixed(const Coefficients& a, int32_t x, int32_t y) {
  return std::fabs(x * a[0] + y * a[1] + a[2]) < 32768.0 &&
         std::fabs(x * a[3] + y * a[4] + a[5]) < 32768.0;
}

bool is_fixed(const Job& job, const Coefficients& a) {
  return corner_is_fixed(a, 0, 0) && corner_is_fixed(a, job.width, job.height) &&
         corner_is_fixed(a, 0, job.height) && corner_is_fixed(a, job.width, 0);
}

/// The sum that Pillow makes of ints, which is taken to wrap around.
int32_t wrapped_sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

/// Leaves those x from begin to end for which first + x * step is from 0 up and below limit: they
/// are a span. Where there are none, begin ends up at or behind end.
void narrow(int64_t first, int64_t step, int64_t limit, int64_t& begin, int64_t& end) {
  if (step == 0) {
    if (first < 0 || first >= limit) end = 0;
    return;
  }
  if (step < 0) {  // counted from the other border
    first = limit - 1 - first;
    step = -step;
  }
  // The first x that is no longer below a bound is the quotient, rounded up.
  const auto reaching = [&](int64_t bound) {
    return bound <= first ? 0 : (bound - first + step - 1) / step;
  };
  begin = std::max(begin, reaching(0));
  end = std::min(end, reaching(limit));
}

bool has_int(int64_t value) { return value >= INT32_MIN && value <= INT32_MAX; }

/// A row of which no pixel needs a test.
void fixed_row(const Job& job, int32_t x_first, int32_t y_first, int32_t x_step, int32_t y_step,
               uint8_t* row) {
  int64_t begin = 0;
  int64_t end = job.width;
  narrow(x_first, x_step, int64_t{job.from_width} << kFractionBits, begin, end);
  narrow(y_first, y_step, int64_t{job.from_height} << kFractionBits, begin, end);
  if (begin >= end) return fill_span(job, row, 0, job.width);
  fill_span(job, row, 0, begin);
  auto x_in = static_cast<int32_t>(x_first + begin * x_step);
  auto y_in = static_cast<int32_t>(y_first + begin * y_step);
  uint8_t* to = at(row, begin);
  if (x_step == static_cast<int32_t>(kOne) && y_step == 0) {  // a shear or a move along the rows
    std::memcpy(to, job.from_pixel(x_in >> kFractionBits, y_in >> kFractionBits),
                static_cast<size_t>(end - begin) * Canvas::kRgb);
  } else {
    // Copied, as the compiler has to think that the pixels written could be the job.
    const uint8_t* const from = job.from;
    const auto from_width = static_cast<size_t>(job.from_width);
    for (int64_t x = begin; x < end; ++x, to += Canvas::kRgb) {
      const size_t pixel = static_cast<size_t>(y_in >> kFractionBits) * from_width +
                           static_cast<size_t>(x_in >> kFractionBits);
      copy_pixel_and_more(from + pixel * Canvas::kRgb, to);
      x_in = wrapped_sum(x_in, x_step);
      y_in = wrapped_sum(y_in, y_step);
    }
  }
  fill_span(job, row, end, job.width);
}

/// A row whose sums may run over.
void wrapping_row(const Job& job, int32_t x_in, int32_t y_in, int32_t x_step, int32_t y_step,
                  uint8_t* row) {
  for (int32_t x = 0; x < job.width; ++x, row += Canvas::kRgb) {
    const int32_t from_x = x_in >> kFractionBits;
    const int32_t from_y = y_in >> kFractionBits;
    const bool inside =
        from_x >= 0 && from_x < job.from_width && from_y >= 0 && from_y < job.from_height;
    copy_pixel(inside ? job.from_pixel(from_x, from_y) : job.fill.rgb, row);
    x_in = wrapped_sum(x_in, x_step);
    y_in = wrapped_sum(y_in, y_step);
  }
}

void warp_fixed(const Job& job, const Coefficients& a, const Canvas& canvas) {
  const int32_t a0 = fixed(a[0]);
  const int32_t a1 = fixed(a[1]);
  const int32_t a3 = fixed(a[3]);
  const int32_t a4 = fixed(a[4]);
  int32_t x_first = fixed(a[2] + a[0] * 0.5 + a[1] * 0.5);
  int32_t y_first = fixed(a[5] + a[3] * 0.5 + a[4] * 0.5);
  for (int32_t y = 0; y < job.height; ++y) {
    canvas.throw_if_stopped();
    if (has_int(x_first + int64_t{job.width - 1} * a0) &&
        has_int(y_first + int64_t{job.width - 1} * a3)) {
      fixed_row(job, x_first, y_first, a0, a3, job.row(y));
    } else {
      wrapping_row(job, x_first, y_first, a0, a3, job.row(y));
    }
    x_first = wrapped_sum(x_first, a1);
    y_first = wrapped_sum(y_first, a4);
  }
}

// --- from further away --------------------------------------------------------------------------

void warp_far(const Job& job, const Coefficients& a, const Canvas& canvas) {
  double x_first = a[2] + a[1] * 0.5 + a[0] * 0.5;
  double y_first = a[5] + a[4] * 0.5 + a[3] * 0.5;
  for (int32_t y = 0; y < job.height; ++y) {
    canvas.throw_if_stopped();
    double x_in = x_first;
    double y_in = y_first;
    uint8_t* to = job.row(y);
    for (int32_t x = 0; x < job.width; ++x, to += Canvas::kRgb) {
      const bool inside = lies_in(x_in, job.from_width) && lies_in(y_in, job.from_height);
      copy_pixel(inside ? job.from_pixel(static_cast<int32_t>(x_in), static_cast<int32_t>(y_in))
                        : job.fill.rgb,
                 to);
      x_in += a[0];
      y_in += a[3];
    }
    x_first += a[1];
    y_first += a[4];
  }
}

}  // namespace

void warp_affine_nearest(const std::array<double, 6>& a, const Fill& fill, const ImageSize& size,
                         Canvas& canvas) {
  const ImageSize& from = canvas.size();
  const Job job = {canvas.pixels(),
                   canvas.other(size),
                   static_cast<int32_t>(from.width),
                   static_cast<int32_t>(from.height),
                   static_cast<int32_t>(size.width),
                   static_cast<int32_t>(size.height),
                   fill};
  if (a[1] == 0 && a[3] == 0) {
    scale(job, a, canvas);
  } else if (is_fixed(job, a)) {
    warp_fixed(job, a, canvas);
  } else {
    warp_far(job, a, canvas);
  }
}

}  // namespace fastloader
