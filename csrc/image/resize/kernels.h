#pragma once

#include <cstddef>
#include <cstdint>

#include "image/resize/axis.h"
#include "image/resize/buffer.h"

namespace fastloader {

// What the implementations of the two passes on the dispatch list are given.
//
// A pass sees a row as bytes, not pixels: each output byte is a sum over input bytes, and the
// vector kernels make 8 or 16 neighbouring bytes at a time, one per 32-bit lane, with any number
// of channels. A *step* multiplies a few taps of every lane; coefficients, which have more
// bits than the multipliers, come in *parts* that are summed apart and put together at the end,
// which is exact since all of it is integers.

enum class TapPacking : uint8_t {
  kNone,   // scalar: a step is a tap, a word is its coefficient
  kPairs,  // a step is 2 taps of 16 bits; parts: bits 11 and up (signed), bits 0 to 10
  kQuads,  // a step is 4 taps of 8 bits; parts: 3 signed digits of 8 bits, lowest first
};

constexpr int kPairShift = 11;

constexpr size_t taps_per_step(TapPacking packing) {
  return packing == TapPacking::kNone ? 1 : packing == TapPacking::kPairs ? 2 : 4;
}

constexpr size_t parts_of(TapPacking packing) {
  return packing == TapPacking::kNone ? 1 : packing == TapPacking::kPairs ? 2 : 3;
}

/// Taps of a block in the wide form of the horizontal pass.
constexpr size_t taps_per_block(TapPacking packing) {
  return packing == TapPacking::kQuads ? 16 : 4;
}

/// What a horizontal kernel may read and write regardless of the size of the row.
constexpr size_t kRowGrain = 64;

constexpr size_t padded_row(size_t bytes) {
  return (bytes + kRowGrain - 1) / kRowGrain * kRowGrain;
}

/// The horizontal pass as tables. A kernel reads the row through *windows* of 16 (pairs) or 64
/// (quads) bytes, each serving 4 or 16 neighbouring lanes, and moves its bytes to their lanes with
/// one shuffle. Where the taps of a window's lanes are further apart than that (small outputs of
/// large inputs) it takes several *pieces*, each filling some of the lanes.
///
/// With many taps such tables outgrow the cache. RGB then goes pixel by pixel, which is the *wide*
/// form: the taps of one pixel in blocks, all of one length, whose shuffle is always the same.
class HorizontalPlan {
 public:
  /// `mirrored` exchanges left and right of the output, at no cost.
  void set(const ResizeAxis& axis, bool axis_changed, size_t channels, bool mirrored,
           TapPacking packing);

  const ResizeAxis& axis() const { return *axis_; }
  size_t channels() const { return channels_; }
  bool mirrored() const { return mirrored_; }
  size_t in_row_bytes() const { return axis_->in() * channels_; }
  size_t out_row_bytes() const { return axis_->out() * channels_; }

  // Vector packings only. Lanes are counted over a whole row, which is padded to kRowGrain.
  size_t lanes() const { return lanes_; }
  size_t steps() const { return steps_; }
  size_t pieces() const { return pieces_; }
  /// [group of lanes sharing a vector][step][piece][lane]: 4 bytes each, positions in the window;
  /// bit 7 for none (the quads' kernel needs masks() for that).
  const uint32_t* shuffles() const { return shuffles_.data(); }
  /// [vector][step][part][lane]
  const uint32_t* words() const { return words_.data(); }
  /// [vector][step][piece][window]: where in the row
  const uint32_t* offsets() const { return offsets_.data(); }
  /// [vector][step][piece]: the bytes that this piece fills. Quads only.
  const uint64_t* masks() const { return masks_.data(); }

  // The wide form has no shuffles and masks; steps() is the number of blocks,
  // words() is [pixel][block][part][step of the block], offsets() is [pixel].
  bool wide() const { return wide_; }
  /// From this offset on, the last block's vector would reach beyond the row: the pixel's vectors
  /// must start earlier, by what they are longer than a block.
  size_t late_offset() const { return late_offset_; }

  size_t bytes() const {
    return shuffles_.bytes() + words_.bytes() + offsets_.bytes() + masks_.bytes();
  }

 private:
  template <class Packing>
  void fill();
  template <class Packing>
  bool fill_wide();
  template <class Packing>
  void fill_window(size_t window);

  bool ready_ = false;
  const ResizeAxis* axis_ = nullptr;
  size_t channels_ = 0;
  bool mirrored_ = false;
  TapPacking packing_ = TapPacking::kNone;
  size_t lanes_ = 0;
  size_t steps_ = 0;
  size_t pieces_ = 0;
  bool wide_ = false;
  size_t late_offset_ = 0;
  GrowingBuffer<uint32_t> shuffles_;
  GrowingBuffer<uint32_t> words_;
  GrowingBuffer<uint32_t> offsets_;
  GrowingBuffer<uint64_t> masks_;
};

/// The vertical pass: for each output row, words[step][part].
class VerticalPlan {
 public:
  void set(const ResizeAxis& axis, bool axis_changed, TapPacking packing);

  size_t steps(size_t out_row) const {
    const size_t taps = taps_per_step(packing_);
    return (axis_->count(out_row) + taps - 1) / taps;
  }
  const uint32_t* words(size_t out_row) const { return words_.data() + out_row * row_words_; }

  size_t bytes() const { return words_.bytes(); }

 private:
  const ResizeAxis* axis_ = nullptr;
  TapPacking packing_ = TapPacking::kNone;
  size_t row_words_ = 0;
  GrowingBuffer<uint32_t> words_;
};

struct ResizeKernels {
  TapPacking packing;

  /// One row. Reads at most max(plan.in_row_bytes(), kRowGrain) bytes at `in` and writes at most
  /// padded_row(plan.out_row_bytes()) at `out`.
  void (*horizontal)(const HorizontalPlan& plan, const uint8_t* in, uint8_t* out);

  /// One row of exactly `bytes` bytes from rows[0 .. steps * taps_per_step), which may be read up
  /// to padded_row(bytes).
  void (*vertical)(const uint8_t* const* rows, const uint32_t* words, size_t steps, size_t bytes,
                   uint8_t* out);
};

extern const ResizeKernels kResizeScalar;
extern const ResizeKernels kResizeAvx2;
extern const ResizeKernels kResizeAvx512Vnni;

}  // namespace fastloader
