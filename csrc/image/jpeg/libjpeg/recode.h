#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fastloader {

/// A progressive JPEG written again as a sequential one, as jpegtran does it: with the same
/// coefficients, and therefore the same pixels, with Huffman codes made for it, with restarts if
/// its first scan has all components and has them, and byte for byte with the segments before that
/// scan (EXIF, ICC profile, comments), which are those that Pillow reads.
///
/// Nothing for a file that is best left as it is: one that is not progressive; that libjpeg or
/// Pillow may find anything wrong with; that lacks scans (decoders smooth those, but not
/// sequential files); that has something behind its end marker, or says that it has (MPF); that
/// would need more than twice its bytes; or that is beyond Pillow's limit of pixels or ours of
/// work. Throws UnsupportedImage if this build has no libjpeg-turbo.
std::optional<std::vector<uint8_t>> recode_as_sequential(const uint8_t* data, size_t size);

}  // namespace fastloader
