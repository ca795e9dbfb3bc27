#pragma once

#include <cstdint>

namespace fastloader {

/// What pictures have cost their threads, in nanoseconds of wall time: a thread that waits for the
/// disk is taken up as much as one that computes.
///
/// Each row is resized as soon as it was decoded, so the two cannot be told apart by a look at the
/// clock before and after. On every 16th picture of a thread the clock is read at each row, 25 ns
/// twice; the share of the resize in those stands for all.
struct StageTimes {
  uint64_t pictures = 0;
  uint64_t bytes = 0;     ///< encoded
  int64_t read = 0;       ///< from the source; 0 where it gives a view of mapped pages
  int64_t decode = 0;     ///< and resize
  int64_t finish = 0;     ///< normalise, or bring into the final layout
  int64_t looked_at = 0;  ///< of `decode`: that of pictures whose rows were timed
  int64_t resize = 0;     ///< of `looked_at`: what the resize took

  void add(const StageTimes& other) {
    pictures += other.pictures;
    bytes += other.bytes;
    read += other.read;
    decode += other.decode;
    finish += other.finish;
    looked_at += other.looked_at;
    resize += other.resize;
  }
};

}  // namespace fastloader
