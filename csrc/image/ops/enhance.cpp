#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/in_pieces.h"
#include "image/ops/kernels/colour.h"

namespace fastloader {
namespace {

/// Blends the picture with one of which every byte is `other`.
void blend_bytes(uint8_t other, float factor, Canvas& canvas) {
  in_pieces(canvas, [&](uint8_t* rgb, size_t pixels) {
    canvas.isa().colour->blend(other, factor, rgb, pixels * Canvas::kRgb);
  });
}

/// The mean of the picture in grey, rounded as ImageEnhance.Contrast does.
uint8_t mean_grey(Canvas& canvas) {
  uint64_t sum = 0;
  in_pieces(canvas, [&](const uint8_t* rgb, size_t pixels) {
    sum += canvas.isa().colour->sum_of_greys(rgb, pixels);
  });
  const size_t pixels = canvas.bytes() / Canvas::kRgb;
  return static_cast<uint8_t>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
}

}  // namespace

void brightness(float factor, Canvas& canvas) { blend_bytes(0, factor, canvas); }

void contrast(float factor, Canvas& canvas) { blend_bytes(mean_grey(canvas), factor, canvas); }

void saturation(float factor, Canvas& canvas) {
  in_pieces(canvas, [&](uint8_t* rgb, size_t pixels) {
    canvas.isa().colour->saturate(factor, rgb, pixels);
  });
}

void grayscale(Canvas& canvas) {
  in_pieces(canvas,
            [&](uint8_t* rgb, size_t pixels) { canvas.isa().colour->grayscale(rgb, pixels); });
}

}  // namespace fastloader
