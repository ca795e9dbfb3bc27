#include "image/resize/resizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/resize/axis.h"
#include "image/resize/buffer.h"
#include "image/resize/kernels.h"

namespace fastloader {
namespace {

void check_edge(const char* name, size_t edge) {
  if (edge < 1 || edge > kMaxResizeEdge) {
    throw InvalidArgument(std::string("resize: ") + name + " is " + std::to_string(edge) +
                          ", not between 1 and " + std::to_string(kMaxResizeEdge));
  }
}

/// A row of the output, where it is one of the input.
void copy_pixels(const ResizeSpec& spec, const uint8_t* in, uint8_t* out) {
  const size_t channels = spec.channels;
  const size_t width = spec.written().width;
  if (!spec.horizontal_flip) {
    std::memcpy(out, in, width * channels);
    return;
  }
  for (size_t x = 0; x < width; ++x) {
    for (size_t c = 0; c < channels; ++c) {
      out[(width - 1 - x) * channels + c] = in[x * channels + c];
    }
  }
}

}  // namespace

void validate(const ResizeSpec& spec) {
  check_edge("input width", spec.in_width);
  check_edge("input height", spec.in_height);
  check_edge("output width", spec.out_width);
  check_edge("output height", spec.out_height);
  if (spec.channels != 1 && spec.channels != 3) {
    throw InvalidArgument("resize: " + std::to_string(spec.channels) + " channels, not 1 or 3");
  }
  const CropBox made = spec.written();
  if (made.width == 0 || made.left >= spec.out_width || made.width > spec.out_width - made.left ||
      made.height == 0 || made.top >= spec.out_height || made.height > spec.out_height - made.top) {
    throw InvalidArgument("resize: the window is empty or not inside the output");
  }
  if (!spec.box) return;
  const ResizeBox& box = *spec.box;
  // Written so that NaN is refused.
  if (!(box.left >= 0 && box.top >= 0 && box.left < box.right && box.top < box.bottom &&
        box.right <= static_cast<float>(spec.in_width) &&
        box.bottom <= static_cast<float>(spec.in_height))) {
    throw InvalidArgument("resize: the box is empty or not inside the image");
  }
}

struct Resizer::State {
  explicit State(const ResizeKernels& chosen) : kernels(&chosen) {}

  const ResizeKernels* kernels;
  ResizeSpec spec;
  uint8_t* out = nullptr;
  size_t out_stride = 0;
  bool horizontal_pass = false;
  bool vertical_pass = false;
  bool vertical_first = false;
  CropBox needed;
  size_t made = 0;     // rows of the output
  size_t next_in = 0;  // counted from the first that is needed, or made
  size_t next_out = 0;

  ResizeAxis horizontal_axis;
  ResizeAxis vertical_axis;
  HorizontalPlan horizontal_plan;
  VerticalPlan vertical_plan;

  // Rows that wait for the vertical pass, after the horizontal one or as they came: row y lies in
  // slot y % ring_rows until no output row needs it. With no vertical pass there is one slot.
  size_t ring_rows = 0;
  size_t ring_row_bytes = 0;
  GrowingBuffer<uint8_t> ring;
  GrowingBuffer<const uint8_t*> taps;
  GrowingBuffer<uint8_t> between;     // after the first pass, if it is the vertical one
  GrowingBuffer<uint8_t> finished;    // after the horizontal pass, if it is the last
  uint8_t short_row[kRowGrain] = {};  // an input row that is shorter than what kernels may read

  uint8_t* slot(size_t row) { return ring.data() + row % ring_rows * ring_row_bytes; }
};

Resizer::Resizer() : state_(std::make_unique<State>(*active_isa().resize)) {}
Resizer::Resizer(const std::string& isa)
    : state_(std::make_unique<State>(*isa_by_name(isa).resize)) {}
Resizer::Resizer(Resizer&&) noexcept = default;
Resizer& Resizer::operator=(Resizer&&) noexcept = default;
Resizer::~Resizer() = default;

CropBox Resizer::needed() const { return state_->needed; }
bool Resizer::finished() const { return state_->next_out == state_->made; }

void Resizer::begin(const ResizeSpec& spec, uint8_t* out, size_t out_stride) {
  validate(spec);
  if (out_stride < spec.out_row_bytes()) {
    throw InvalidArgument("resize: a stride of " + std::to_string(out_stride) +
                          " bytes is shorter than an output row");
  }
  State& s = *state_;
  const ResizeBox box = spec.box.value_or(
      ResizeBox{0, 0, static_cast<float>(spec.in_width), static_cast<float>(spec.in_height)});
  const CropBox made = spec.written();
  const AxisGeometry across{spec.in_width, box.left,   box.right,  spec.out_width,
                            made.left,     made.width, spec.filter};
  const AxisGeometry down{spec.in_height, box.top,     box.bottom, spec.out_height,
                          made.top,       made.height, spec.filter};
  s.spec = spec;
  s.out = out;
  s.out_stride = out_stride;
  s.next_in = 0;
  s.made = made.height;
  s.next_out = made.height;  // finished, should anything below throw
  s.horizontal_pass = across.changes_anything();
  s.vertical_pass = down.changes_anything();
  s.vertical_first = s.horizontal_pass && s.vertical_pass && spec.vertical_first();
  s.needed = made;  // along an axis without a pass
  if (s.horizontal_pass) {
    const bool changed = s.horizontal_axis.set(across);
    s.horizontal_plan.set(s.horizontal_axis, changed, spec.channels, spec.horizontal_flip,
                          s.kernels->packing);
    s.needed.left = s.horizontal_axis.in_first();
    s.needed.width = s.horizontal_axis.in();
  }
  s.ring_rows = 1;
  if (s.vertical_pass) {
    const bool changed = s.vertical_axis.set(down);
    s.vertical_plan.set(s.vertical_axis, changed, s.kernels->packing);
    s.needed.top = s.vertical_axis.in_first();
    s.needed.height = s.vertical_axis.in();
    s.ring_rows = s.vertical_axis.max_count();
    s.taps.require(s.vertical_axis.stride());
  }
  const size_t in_row = s.needed.width * spec.channels;
  s.ring_row_bytes = padded_row(s.vertical_first ? in_row : spec.out_row_bytes());
  s.ring.require(s.ring_rows * s.ring_row_bytes);
  if (s.vertical_first) {
    s.between.require(padded_row(in_row));
    s.finished.require(padded_row(spec.out_row_bytes()));
  }
  s.next_out = 0;
}

uint8_t* Resizer::out_row(size_t row) const {
  const State& s = *state_;
  return s.out + (s.spec.vertical_flip ? s.made - 1 - row : row) * s.out_stride;
}

void Resizer::push_row(const uint8_t* row) {
  State& s = *state_;
  const size_t y = s.next_in++;
  if (finished()) return;
  const size_t row_bytes = s.needed.width * s.spec.channels;
  if (!s.horizontal_pass && !s.vertical_pass) {
    copy_pixels(s.spec, row, out_row(s.next_out++));
    return;
  }
  uint8_t* slot = s.slot(y);
  if (s.vertical_first) {
    std::memcpy(slot, row, row_bytes);
  } else if (s.horizontal_pass) {
    if (row_bytes < kRowGrain) {
      std::memcpy(s.short_row, row, row_bytes);
      row = s.short_row;
    }
    s.kernels->horizontal(s.horizontal_plan, row, slot);
  } else {
    copy_pixels(s.spec, row, slot);
  }
  if (!s.vertical_pass) {
    std::memcpy(out_row(s.next_out++), slot, s.spec.out_row_bytes());
    return;
  }
  while (!finished() && s.vertical_axis.end(s.next_out) <= y + 1) write_row(s.next_out++);
}

void Resizer::write_row(size_t out) {
  State& s = *state_;
  const size_t steps = s.vertical_plan.steps(out);
  const size_t first = s.vertical_axis.first(out);
  const size_t last = s.vertical_axis.end(out) - 1;
  const size_t taps = steps * taps_per_step(s.kernels->packing);
  for (size_t k = 0; k < taps; ++k) s.taps.data()[k] = s.slot(std::min(first + k, last));
  const uint32_t* words = s.vertical_plan.words(out);
  if (!s.vertical_first) {
    s.kernels->vertical(s.taps.data(), words, steps, s.spec.out_row_bytes(), out_row(out));
    return;
  }
  s.kernels->vertical(s.taps.data(), words, steps, s.needed.width * s.spec.channels,
                      s.between.data());
  s.kernels->horizontal(s.horizontal_plan, s.between.data(), s.finished.data());
  std::memcpy(out_row(out), s.finished.data(), s.spec.out_row_bytes());
}

void Resizer::resize(const ResizeSpec& spec, const uint8_t* in, size_t in_stride, uint8_t* out,
                     size_t out_stride) {
  if (in_stride < spec.in_row_bytes()) {
    throw InvalidArgument("resize: a stride of " + std::to_string(in_stride) +
                          " bytes is shorter than an input row");
  }
  begin(spec, out, out_stride);
  const CropBox part = needed();
  in += part.top * in_stride + part.left * spec.channels;
  for (size_t y = 0; y < part.height; ++y) push_row(in + y * in_stride);
}

size_t Resizer::scratch_bytes() const {
  const State& s = *state_;
  return sizeof(State) + s.horizontal_axis.bytes() + s.vertical_axis.bytes() +
         s.horizontal_plan.bytes() + s.vertical_plan.bytes() + s.ring.bytes() + s.taps.bytes() +
         s.between.bytes() + s.finished.bytes();
}

}  // namespace fastloader
