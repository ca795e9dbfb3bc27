#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fastloader {

/// A progressive JPEG written again as a sequential one, as jpegtran does it: with the same
/// coefficients, and therefore the same pixels, with its other segments (EXIF, ICC profile,
/// comments) and with Huffman codes made for it. A sequential file decodes faster, and a few
/// percent more bytes hold it.
///
/// Nothing for a file that is best left as it is: one that is not progressive, is damaged, lacks
/// scans (a decoder smooths those, but not sequential files), or is large or has scans beyond
/// Pillow's limits of pixels and ours of work. Throws UnsupportedImage if this build has no
/// libjpeg-turbo.
std::optional<std::vector<uint8_t>> recode_as_sequential(const uint8_t* data, size_t size);

}  // namespace fastloader
