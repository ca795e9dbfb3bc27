#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// How many bytes before and behind a row unfilter() may read.
constexpr size_t kUnfilterMargin = 8;

/// Takes a PNG's filter off a row, in place. `above` is the row above without its filter, or zeros.
/// `step`: bytes from a pixel to the next, 1 at least, and 8 at most. Throws DecodeError for a
/// filter that does not exist.
void unfilter(uint8_t filter, uint8_t* row, const uint8_t* above, size_t bytes, size_t step);

}  // namespace fastloader
