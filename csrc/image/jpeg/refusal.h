#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

/// Why the decoder of our own leaves a picture to libjpeg-turbo, or to Pillow.
enum class JpegRefusal : uint8_t {
  kNone,
  kKind,      ///< arithmetic coding, 12 bits, lossless, hierarchical
  kLayout,    ///< a number of components or a sampling that it does not know
  kColour,    ///< three components that are not YCbCr
  kScans,     ///< scans that are not complete or not in order
  kEnd,       ///< no end marker behind the scan: whether that is an error depends on the rest
  kDamage,    ///< what no clean encoder writes
  kNotAsked,  ///< the caller wants what only libjpeg-turbo gives
};

constexpr size_t kJpegRefusals = 8;

/// A word or two, for statistics: "damage".
const char* name_of(JpegRefusal refusal);

}  // namespace fastloader
