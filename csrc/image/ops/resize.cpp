#include <algorithm>
#include <cmath>
#include <cstring>

#include "image/ops/checks.h"
#include "image/ops/families.h"
#include "image/ops/fill.h"
#include "image/ops/operation.h"
#include "image/ops/warp.h"

namespace fastloader {
namespace {

/// Pillow's number of the way that fetches pixels as they are; the filters have those behind it.
constexpr int kNearest = 0;
constexpr ResizeFilter kFilters[] = {ResizeFilter::kLanczos, ResizeFilter::kBilinear,
                                     ResizeFilter::kBicubic, ResizeFilter::kBox,
                                     ResizeFilter::kHamming};
constexpr int kLast = kTorchNearest;
static_assert(kLast == sizeof(kFilters) / sizeof(kFilters[0]) + 1);

/// Pillow's way to do it: the affine warp that only scales.
void resize_nearest(const ImageSize& made, Canvas& canvas) {
  const auto scale = [](size_t from, size_t to) {
    return static_cast<double>(from) / static_cast<double>(to);
  };
  const ImageSize& from = canvas.size();
  warp_affine_nearest({scale(from.width, made.width), 0, 0, 0, scale(from.height, made.height), 0},
                      Fill{}, made, canvas);
}

/// Which pixel of an edge each pixel of the resized one is.
void take_torch_nearest(size_t from, size_t to, int32_t* taken) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (size_t i = 0; i < to; ++i) {
    const auto place = static_cast<size_t>(std::floor(static_cast<float>(i) * scale));
    taken[i] = static_cast<int32_t>(std::min(place, from - 1));
  }
}

void resize_torch_nearest(const ImageSize& made, Canvas& canvas) {
  const ImageSize from = canvas.size();
  auto* columns =
      reinterpret_cast<int32_t*>(canvas.scratch((made.width + made.height) * sizeof(int32_t)));
  int32_t* rows = columns + made.width;
  take_torch_nearest(from.width, made.width, columns);
  take_torch_nearest(from.height, made.height, rows);
  uint8_t* out = canvas.other(made);
  for (size_t y = 0; y < made.height; ++y) {
    canvas.throw_if_stopped();
    const uint8_t* row = canvas.pixels() + static_cast<size_t>(rows[y]) * canvas.row_bytes();
    for (size_t x = 0; x < made.width; ++x, out += Canvas::kRgb) {
      std::memcpy(out, row + static_cast<size_t>(columns[x]) * Canvas::kRgb, Canvas::kRgb);
    }
  }
}

void resize_filtered(ResizeFilter filter, const ImageSize& made, Canvas& canvas) {
  ResizeSpec spec;
  spec.in_width = canvas.size().width;
  spec.in_height = canvas.size().height;
  spec.out_width = made.width;
  spec.out_height = made.height;
  spec.channels = Canvas::kRgb;
  spec.filter = filter;
  spec.order = canvas.resize_order();
  Resizer& resizer = canvas.resizer();
  resizer.begin(spec, canvas.other(made), spec.out_row_bytes());
  const CropBox part = resizer.needed();
  const uint8_t* row = canvas.pixels() + part.top * canvas.row_bytes() + part.left * Canvas::kRgb;
  for (size_t y = 0; y < part.height; ++y, row += canvas.row_bytes()) {
    canvas.throw_if_stopped();
    resizer.push_row(row);
  }
}

}  // namespace

void check_resize(const std::vector<double>& numbers) {
  constexpr auto kMost = static_cast<double>(kMaxImageEdge);
  check_whole("resize", "height", numbers[0], 1, kMost);
  check_whole("resize", "width", numbers[1], 1, kMost);
  check_whole("resize", "resampling", numbers[2], kNearest, kLast);
  checked_size("resize", static_cast<int64_t>(numbers[1]), static_cast<int64_t>(numbers[0]));
}

ImageSize resized_size(const std::vector<double>& numbers) {
  return {static_cast<size_t>(numbers[0]), static_cast<size_t>(numbers[1])};
}

void resize(const std::vector<double>& numbers, Canvas& canvas) {
  const ImageSize made = resized_size(numbers);
  if (made == canvas.size()) return;
  const auto resampling = static_cast<int>(numbers[2]);
  if (resampling == kNearest) {
    resize_nearest(made, canvas);
  } else if (resampling == kTorchNearest) {
    resize_torch_nearest(made, canvas);
  } else {
    resize_filtered(kFilters[resampling - 1], made, canvas);
  }
  canvas.turn();
}

}  // namespace fastloader
