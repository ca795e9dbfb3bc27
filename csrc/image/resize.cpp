#include "image/resize.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/resize_axis.h"
#include "image/resize_buffer.h"
#include "image/resize_kernels.h"

namespace fastloader {
namespace {

void check_edge(const char* name, size_t edge) {
  if (edge < 1 || edge > kMaxResizeEdge) {
    throw InvalidArgument(std::string("resize: ") + name + " is " + std::to_string(edge) +
                          ", not between 1 and " + std::to_string(kMaxResizeEdge));
  }
}

void copy_pixels(const ResizeSpec& spec, const uint8_t* in, uint8_t* out) {
  if (!spec.horizontal_flip) {
    std::memcpy(out, in, spec.in_row_bytes());
    return;
  }
  const size_t channels = spec.channels;
  for (size_t x = 0; x < spec.in_width; ++x) {
    for (size_t c = 0; c < channels; ++c) {
      out[(spec.in_width - 1 - x) * channels + c] = in[x * channels + c];
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
  size_t first_row = 0;  // of the input, that matters
  size_t end_row = 0;
  size_t next_in = 0;
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

size_t Resizer::first_row() const { return state_->first_row; }
size_t Resizer::end_row() const { return state_->end_row; }
bool Resizer::finished() const { return state_->next_out == state_->spec.out_height; }

void Resizer::begin(const ResizeSpec& spec, uint8_t* out, size_t out_stride) {
  validate(spec);
  if (out_stride < spec.out_row_bytes()) {
    throw InvalidArgument("resize: a stride of " + std::to_string(out_stride) +
                          " bytes is shorter than an output row");
  }
  State& s = *state_;
  const ResizeBox box = spec.box.value_or(
      ResizeBox{0, 0, static_cast<float>(spec.in_width), static_cast<float>(spec.in_height)});
  const AxisGeometry across{spec.in_width, box.left, box.right, spec.out_width, spec.filter};
  const AxisGeometry down{spec.in_height, box.top, box.bottom, spec.out_height, spec.filter};
  s.spec = spec;
  s.out = out;
  s.out_stride = out_stride;
  s.next_in = 0;
  s.next_out = spec.out_height;  // finished, should anything below throw
  s.horizontal_pass = across.changes_anything();
  s.vertical_pass = down.changes_anything();
  s.vertical_first = s.horizontal_pass && s.vertical_pass && spec.vertical_first();
  if (s.horizontal_pass) {
    const bool changed = s.horizontal_axis.set(across);
    s.horizontal_plan.set(s.horizontal_axis, changed, spec.channels, spec.horizontal_flip,
                          s.kernels->packing);
  }
  s.first_row = 0;
  s.end_row = spec.in_height;
  s.ring_rows = 1;
  if (s.vertical_pass) {
    const bool changed = s.vertical_axis.set(down);
    s.vertical_plan.set(s.vertical_axis, changed, s.kernels->packing);
    s.first_row = s.vertical_axis.first(0);
    s.end_row = s.vertical_axis.end(spec.out_height - 1);
    s.ring_rows = s.vertical_axis.max_count();
    s.taps.require(s.vertical_axis.stride());
  }
  s.ring_row_bytes = padded_row(s.vertical_first ? spec.in_row_bytes() : spec.out_row_bytes());
  s.ring.require(s.ring_rows * s.ring_row_bytes);
  if (s.vertical_first) {
    s.between.require(padded_row(spec.in_row_bytes()));
    s.finished.require(padded_row(spec.out_row_bytes()));
  }
  s.next_out = 0;
}

uint8_t* Resizer::out_row(size_t row) const {
  const State& s = *state_;
  return s.out + (s.spec.vertical_flip ? s.spec.out_height - 1 - row : row) * s.out_stride;
}

void Resizer::push_row(const uint8_t* row) {
  State& s = *state_;
  const size_t y = s.next_in++;
  if (y < s.first_row || y >= s.end_row || finished()) return;
  if (!s.horizontal_pass && !s.vertical_pass) {
    copy_pixels(s.spec, row, out_row(s.next_out++));
    return;
  }
  uint8_t* slot = s.slot(y);
  if (s.vertical_first) {
    std::memcpy(slot, row, s.spec.in_row_bytes());
  } else if (s.horizontal_pass) {
    if (s.spec.in_row_bytes() < kRowGrain) {
      std::memcpy(s.short_row, row, s.spec.in_row_bytes());
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
  s.kernels->vertical(s.taps.data(), words, steps, s.spec.in_row_bytes(), s.between.data());
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
  for (size_t y = 0; y < end_row(); ++y) push_row(in + y * in_stride);
}

size_t Resizer::scratch_bytes() const {
  const State& s = *state_;
  return sizeof(State) + s.horizontal_axis.bytes() + s.vertical_axis.bytes() +
         s.horizontal_plan.bytes() + s.vertical_plan.bytes() + s.ring.bytes() + s.taps.bytes() +
         s.between.bytes() + s.finished.bytes();
}

}  // namespace fastloader
