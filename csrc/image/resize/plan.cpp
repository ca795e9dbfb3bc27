#include <algorithm>

#include "image/resize/kernels.h"

namespace fastloader {
namespace {

constexpr uint32_t kNothing = 0x80;  // a shuffle's index that gives 0
constexpr size_t kMostLanes = 16;
constexpr size_t kWideChannels = 3;

struct Pairs {
  static constexpr TapPacking kPacking = TapPacking::kPairs;
  static constexpr size_t kTaps = 2;
  static constexpr size_t kParts = 2;
  static constexpr size_t kWindowLanes = 4;
  static constexpr size_t kWindowBytes = 16;
  static constexpr size_t kWindowsPerVector = 2;
  static constexpr size_t kFewestWideTaps = 6;  // measured: where the wide form begins to pay

  /// Bytes become 16 bits wide on their way.
  static uint32_t shuffle(const uint32_t* positions) {
    return positions[0] | kNothing << 8 | positions[1] << 16 | kNothing << 24;
  }

  static void words(const int32_t* taps, uint32_t* parts) {
    const auto pair = [](int32_t first, int32_t second) {
      return (static_cast<uint32_t>(first) & 0xffff) | static_cast<uint32_t>(second) << 16;
    };
    constexpr int32_t kLow = (1 << kPairShift) - 1;
    parts[0] = pair(taps[0] >> kPairShift, taps[1] >> kPairShift);
    parts[1] = pair(taps[0] & kLow, taps[1] & kLow);
  }
};

struct Quads {
  static constexpr TapPacking kPacking = TapPacking::kQuads;
  static constexpr size_t kTaps = 4;
  static constexpr size_t kParts = 3;
  static constexpr size_t kWindowLanes = 16;
  static constexpr size_t kWindowBytes = 64;
  static constexpr size_t kWindowsPerVector = 1;
  static constexpr size_t kFewestWideTaps = 20;

  static uint32_t shuffle(const uint32_t* positions) {
    return positions[0] | positions[1] << 8 | positions[2] << 16 | positions[3] << 24;
  }

  static void words(const int32_t* taps, uint32_t* parts) {
    for (size_t part = 0; part < kParts; ++part) parts[part] = 0;
    for (size_t tap = 0; tap < kTaps; ++tap) {
      // Adding 128 to each digit carries where a digit would be above 127; then 128 is taken off.
      const uint32_t digits = (static_cast<uint32_t>(taps[tap]) + 0x808080u) ^ 0x808080u;
      for (size_t part = 0; part < kParts; ++part) {
        parts[part] |= (digits >> (8 * part) & 255) << (8 * tap);
      }
    }
  }
};

/// A window's lanes belong to these output pixels, in the order of the input.
struct Pixels {
  size_t first;
  size_t end;
};

struct Lanes {
  const ResizeAxis& axis;
  size_t channels;
  bool mirrored;

  size_t pixel(size_t byte) const {
    const size_t position = byte / channels;
    return mirrored ? axis.out() - 1 - position : position;
  }

  /// Empty for a window that lies entirely in the padding.
  Pixels pixels(size_t first_byte, size_t count) const {
    const size_t row = axis.out() * channels;
    if (first_byte >= row) return {0, 0};
    const size_t last_byte = std::min(first_byte + count, row) - 1;
    const size_t a = pixel(first_byte);
    const size_t b = pixel(last_byte);
    return {std::min(a, b), std::max(a, b) + 1};
  }
};

/// The taps of one pixel in one step: input samples [first, end), possibly none.
struct Taps {
  size_t first;
  size_t end;
};

Taps taps_of(const ResizeAxis& axis, size_t pixel, size_t step, size_t taps) {
  const size_t end = axis.end(pixel);
  const size_t first = std::min(axis.first(pixel) + step * taps, end);
  return {first, std::min(first + taps, end)};
}

/// Covers the taps of a window's pixels, from the left, with as few pieces as possible; calls
/// visit(pixel, taps, piece, offset) for each pixel that has any and returns the number of pieces.
template <class Packing, class Visit>
size_t cover(const Lanes& lanes, const Pixels& pixels, size_t step, const Visit& visit) {
  const size_t readable = std::max(lanes.axis.in() * lanes.channels, kRowGrain);
  size_t pieces = 0;
  size_t offset = 0;
  for (size_t pixel = pixels.first; pixel < pixels.end; ++pixel) {
    const Taps taps = taps_of(lanes.axis, pixel, step, Packing::kTaps);
    if (taps.first == taps.end) continue;
    if (pieces == 0 || taps.end * lanes.channels > offset + Packing::kWindowBytes) {
      offset = std::min(taps.first * lanes.channels, readable - Packing::kWindowBytes);
      ++pieces;
    }
    visit(pixel, taps, pieces - 1, offset);
  }
  return pieces;
}

}  // namespace

template <class Packing>
void HorizontalPlan::fill_window(size_t window) {
  constexpr size_t kLanes = Packing::kWindowLanes;
  constexpr size_t kVectorLanes = kLanes * Packing::kWindowsPerVector;
  const size_t vector = window / Packing::kWindowsPerVector;
  const size_t window_in_vector = window % Packing::kWindowsPerVector;
  const size_t first_byte = window * kLanes;
  const size_t end_byte = std::min(first_byte + kLanes, out_row_bytes());
  const Lanes lanes{*axis_, channels_, mirrored_};
  const Pixels pixels = lanes.pixels(first_byte, kLanes);
  for (size_t step = 0; step < steps_; ++step) {
    const size_t first_piece = (vector * steps_ + step) * pieces_;
    uint32_t* shuffles = shuffles_.data() + first_piece * kVectorLanes + window_in_vector * kLanes;
    uint32_t* words = words_.data() + (vector * steps_ + step) * Packing::kParts * kVectorLanes +
                      window_in_vector * kLanes;
    uint32_t* offsets =
        offsets_.data() + first_piece * Packing::kWindowsPerVector + window_in_vector;
    for (size_t piece = 0; piece < pieces_; ++piece) {
      offsets[piece * Packing::kWindowsPerVector] = 0;
      std::fill_n(shuffles + piece * kVectorLanes, kLanes, kNothing * 0x01010101u);
      if (Packing::kPacking == TapPacking::kQuads) masks_.data()[first_piece + piece] = 0;
    }
    for (size_t part = 0; part < Packing::kParts; ++part) {
      std::fill_n(words + part * kVectorLanes, kLanes, uint32_t{0});
    }
    cover<Packing>(lanes, pixels, step, [&](size_t pixel, Taps taps, size_t piece, size_t offset) {
      offsets[piece * Packing::kWindowsPerVector] = static_cast<uint32_t>(offset);
      uint32_t parts[Packing::kParts];
      Packing::words(axis_->coefficients(pixel) + step * Packing::kTaps, parts);
      const size_t position = mirrored_ ? axis_->out() - 1 - pixel : pixel;
      const size_t from = std::max(position * channels_, first_byte);
      const size_t to = std::min((position + 1) * channels_, end_byte);
      for (size_t byte = from; byte < to; ++byte) {
        const size_t channel = byte - position * channels_;
        uint32_t positions[Packing::kTaps];
        for (size_t tap = 0; tap < Packing::kTaps; ++tap) {
          // A tap that is not there has coefficient 0 and may read anything in the window.
          const size_t sample = std::min(taps.first + tap, taps.end - 1);
          positions[tap] = static_cast<uint32_t>(sample * channels_ + channel - offset);
        }
        const size_t lane = byte - first_byte;
        shuffles[piece * kVectorLanes + lane] = Packing::shuffle(positions);
        for (size_t part = 0; part < Packing::kParts; ++part) {
          words[part * kVectorLanes + lane] = parts[part];
        }
        if (Packing::kPacking == TapPacking::kQuads) {
          masks_.data()[first_piece + piece] |= uint64_t{15} << (4 * lane);
        }
      }
    });
  }
}

template <class Packing>
bool HorizontalPlan::fill_wide() {
  constexpr size_t kBlock = taps_per_block(Packing::kPacking);
  constexpr size_t kSteps = kBlock / Packing::kTaps;
  const size_t in_width = axis_->in();
  const size_t out_width = axis_->out();
  const size_t blocks = (axis_->max_count() + kBlock - 1) / kBlock;
  if (channels_ != kWideChannels || axis_->max_count() < Packing::kFewestWideTaps) return false;
  // What all blocks of a pixel read when the last one's vector begins at its first tap, and how
  // much earlier it may begin: room enough for both keeps every read inside the row.
  const size_t span = (blocks - 1) * kBlock * kWideChannels + Packing::kWindowBytes;
  const size_t earlier = Packing::kWindowBytes - kBlock * kWideChannels;
  if (in_row_bytes() < span + earlier) return false;
  late_offset_ = in_row_bytes() - span + 1;
  steps_ = blocks;
  uint32_t* offsets = offsets_.require(out_width);
  uint32_t* words = words_.require(out_width * blocks * kSteps * Packing::kParts);
  for (size_t x = 0; x < out_width; ++x) {
    const size_t pixel = mirrored_ ? out_width - 1 - x : x;
    const size_t first = std::min(axis_->first(pixel), in_width - blocks * kBlock);
    const size_t shift = axis_->first(pixel) - first;
    const size_t count = axis_->count(pixel);
    const int32_t* coefficients = axis_->coefficients(pixel);
    offsets[x] = static_cast<uint32_t>(first * kWideChannels);
    for (size_t block = 0; block < blocks; ++block, words += kSteps * Packing::kParts) {
      for (size_t step = 0; step < kSteps; ++step) {
        int32_t taps[Packing::kTaps];
        for (size_t tap = 0; tap < Packing::kTaps; ++tap) {
          const size_t place = block * kBlock + step * Packing::kTaps + tap;
          const bool there = place >= shift && place - shift < count;
          taps[tap] = there ? coefficients[place - shift] : 0;
        }
        uint32_t parts[Packing::kParts];
        Packing::words(taps, parts);
        for (size_t part = 0; part < Packing::kParts; ++part) {
          words[part * kSteps + step] = parts[part];
        }
      }
    }
  }
  wide_ = true;
  return true;
}

template <class Packing>
void HorizontalPlan::fill() {
  wide_ = false;
  constexpr size_t kLanes = Packing::kWindowLanes;
  static_assert(kLanes <= kMostLanes && kRowGrain % (kLanes * Packing::kWindowsPerVector) == 0);
  lanes_ = padded_row(out_row_bytes());
  steps_ = (axis_->max_count() + Packing::kTaps - 1) / Packing::kTaps;
  pieces_ = 1;
  const Lanes lanes{*axis_, channels_, mirrored_};
  const size_t windows = lanes_ / kLanes;
  const auto ignore = [](size_t, Taps, size_t, size_t) {};
  for (size_t window = 0; window < windows; ++window) {
    const Pixels pixels = lanes.pixels(window * kLanes, kLanes);
    for (size_t step = 0; step < steps_; ++step) {
      pieces_ = std::max(pieces_, cover<Packing>(lanes, pixels, step, ignore));
    }
  }
  if (pieces_ > 1 && fill_wide<Packing>()) return;
  shuffles_.require(lanes_ * steps_ * pieces_);
  words_.require(lanes_ * steps_ * Packing::kParts);
  offsets_.require(windows * steps_ * pieces_);
  if (Packing::kPacking == TapPacking::kQuads) masks_.require(windows * steps_ * pieces_);
  for (size_t window = 0; window < windows; ++window) fill_window<Packing>(window);
}

void HorizontalPlan::set(const ResizeAxis& axis, bool axis_changed, size_t channels, bool mirrored,
                         TapPacking packing) {
  if (ready_ && axis_ == &axis && !axis_changed && channels_ == channels && mirrored_ == mirrored &&
      packing_ == packing) {
    return;
  }
  ready_ = false;  // should an allocation throw
  axis_ = &axis;
  channels_ = channels;
  mirrored_ = mirrored;
  packing_ = packing;
  if (packing == TapPacking::kPairs) fill<Pairs>();
  if (packing == TapPacking::kQuads) fill<Quads>();
  ready_ = true;
}

void VerticalPlan::set(const ResizeAxis& axis, bool axis_changed, TapPacking packing) {
  if (axis_ == &axis && !axis_changed && packing_ == packing) return;
  axis_ = nullptr;
  packing_ = packing;
  const size_t taps = taps_per_step(packing);
  const size_t parts = parts_of(packing);
  const size_t steps = (axis.max_count() + taps - 1) / taps;
  row_words_ = steps * parts;
  uint32_t* words = words_.require(axis.out() * row_words_);
  for (size_t row = 0; row < axis.out(); ++row) {
    const int32_t* coefficients = axis.coefficients(row);
    for (size_t step = 0; step < steps; ++step, words += parts, coefficients += taps) {
      if (packing == TapPacking::kNone) words[0] = static_cast<uint32_t>(coefficients[0]);
      if (packing == TapPacking::kPairs) Pairs::words(coefficients, words);
      if (packing == TapPacking::kQuads) Quads::words(coefficients, words);
    }
  }
  axis_ = &axis;
}

}  // namespace fastloader
