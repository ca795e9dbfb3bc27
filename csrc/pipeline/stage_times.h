#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/refusal.h"

namespace fastloader {

/// What pictures have cost their threads, in nanoseconds of wall time. A thread that waits for the
/// disk counts like one that computes.
///
/// Each row is resized as soon as it was decoded, so two looks at the clock cannot tell the two
/// apart. A thread therefore reads the clock at each row of every 16th picture, which takes 25 ns
/// twice. The share of the resize in those pictures stands for all.
struct StageTimes {
  uint64_t pictures = 0;
  uint64_t bytes = 0;     ///< encoded
  uint64_t files = 0;     ///< of them, pictures that were read from a disk or a network
  uint64_t waited = 0;    ///< of these, whose reading had to wait, whichever thread read
  int64_t read = 0;       ///< from the source; of mapped pages, the time to touch each
  int64_t decode = 0;     ///< and resize
  int64_t recipe = 0;     ///< what a recipe does to the pixels
  int64_t finish = 0;     ///< normalise, or bring into the final layout
  int64_t looked_at = 0;  ///< the part of `decode` that pictures with timed rows took
  int64_t resize = 0;     ///< of `looked_at`: what the resize took
  /// JPEGs by why our own decoder left them to libjpeg-turbo; kNone: it did not.
  uint64_t jpegs[kJpegRefusals] = {};
  uint64_t indexed = 0;  ///< JPEGs that a seek index was used for
  uint64_t unfit = 0;    ///< JPEGs whose seek index is damaged, or of another file

  void add(const StageTimes& other) {
    pictures += other.pictures;
    bytes += other.bytes;
    files += other.files;
    waited += other.waited;
    read += other.read;
    decode += other.decode;
    recipe += other.recipe;
    finish += other.finish;
    looked_at += other.looked_at;
    resize += other.resize;
    for (size_t i = 0; i < kJpegRefusals; ++i) jpegs[i] += other.jpegs[i];
    indexed += other.indexed;
    unfit += other.unfit;
  }
};

}  // namespace fastloader
