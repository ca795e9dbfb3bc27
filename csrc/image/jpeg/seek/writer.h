#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/dispatch.h"

namespace fastloader {

/// Makes the seek index of a JPEG (seek/index.h). Gives nothing for a file that needs none or can
/// have none: a progressive one, one with restarts, one at which anything is wrong, which is left
/// to libjpeg-turbo, and one so small that the index would take more than a thirty-second part of
/// it.
///
/// Parses the whole file once; decodes nothing.
std::vector<uint8_t> make_seek_index(const uint8_t* data, size_t size,
                                     const Isa& isa = active_isa());

/// The same with a given number of segments a row, 1 to kMostSegments, or one for each MCU where a
/// row has fewer; of any size.
std::vector<uint8_t> make_seek_index(const uint8_t* data, size_t size, uint32_t segments,
                                     const Isa& isa = active_isa());

}  // namespace fastloader
