#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/jpeg/decoder.h"
#include "jpeg_plain.h"

namespace fastloader::testing {

struct Compared {
  std::string difference;    ///< empty: as it has to be
  bool begun = false;        ///< the decoder has said whose code makes the pixels
  bool own = false;          ///< rows came from our own decoder
  bool decoded = false;      ///< pixels came out, and the right ones
  bool unsupported = false;  ///< neither right nor wrong
  std::string failure;       ///< why not all rows came, or ""
  std::vector<uint8_t> rgb;  ///< of the rows that came
};

/// What the decoder has to do for a region of a picture that the oracle has decoded whole with the
/// same options and reduction.
class JpegExpectation {
 public:
  JpegExpectation(const PlainJpeg& plain, const JpegRegion& region, const JpegOptions& options)
      : bottom_(region.top + region.height), plain_(plain) {
    const bool pad = options.truncated == Truncated::kPad;
    const bool to_the_end = bottom_ == plain.height || options.check_below;
    if (plain.end() == PlainJpeg::End::kRefused || plain.height == 0) {
      may_decode_ = false;
    } else if (pad) {
      // Rows that are missing for want of bytes are blank; others are an error.
      may_decode_ = plain.padded || bottom_ <= plain.rows;
      may_fail_ = plain.rows == 0 || (!plain.padded && plain.rows < plain.height);
    } else if (plain.end() != PlainJpeg::End::kFine) {
      // Damage below the region may be overlooked, a missing end may not.
      const bool cut = plain.end() == PlainJpeg::End::kTruncated && !plain.has_end_marker;
      may_decode_ = bottom_ <= plain.rows && !to_the_end && !cut;
    } else {
      may_fail_ = false;
    }
  }

  std::string judge_failure(const char* message) const {
    if (may_fail_) return "";
    return std::string("failed, but a whole decode does not: ") + message;
  }

  std::string judge_success() const {
    if (may_decode_) return "";
    return "gave pixels, but a whole decode fails after row " + std::to_string(plain_.rows) + ": " +
           plain_.message();
  }

 private:
  uint32_t bottom_;
  const PlainJpeg& plain_;
  bool may_decode_ = true;
  bool may_fail_ = true;
};

/// Decodes `region` of the picture and compares with the oracle. Damage can leave coefficients that
/// no encoder writes, and with those libjpeg-turbo's code for one processor makes other pixels than
/// that for another: ours does as on x86.
inline Compared compare_region(JpegDecoder& decoder, const uint8_t* data, size_t size,
                               const JpegOptions& options, const JpegRegion& region,
                               const PlainJpeg& plain, [[maybe_unused]] bool damaged = false) {
  Compared result;
  std::string wrong_pixels;
  try {
    decoder.open(data, size, options);
    if (plain.denominator() > 1) decoder.reduce(plain.denominator());
    decoder.begin(region);
    result.begun = true;
    for (uint32_t y = 0; y < region.height; ++y) {
      const uint8_t* row = decoder.read_row();
      result.own = result.own || decoder.made_by() == JpegMaker::kOwn;
      result.rgb.insert(result.rgb.end(), row, row + size_t{region.width} * 3);
      if (!wrong_pixels.empty() || plain.rgb.empty()) continue;
      const uint8_t* expected = plain.pixel(region.left, region.top + y);
      if (std::memcmp(row, expected, size_t{region.width} * 3) != 0) {
        wrong_pixels = "other pixels in row " + std::to_string(region.top + y);
      }
    }
    result.decoded = true;
  } catch (const UnsupportedImage& error) {
    result.unsupported = true;
    result.failure = error.what();
    return result;
  } catch (const DecodeError& error) {
    result.failure = error.what();
    result.difference = JpegExpectation(plain, region, options).judge_failure(error.what());
  }
#if !defined(__x86_64__)
  if (damaged && result.own) wrong_pixels.clear();
#endif
  if (result.decoded) {
    result.difference = JpegExpectation(plain, region, options).judge_success() + wrong_pixels;
  }
  if (!result.difference.empty()) {
    result.difference += " [region " + std::to_string(region.width) + "x" +
                         std::to_string(region.height) + " at (" + std::to_string(region.left) +
                         ", " + std::to_string(region.top) + ") of " + std::to_string(plain.width) +
                         "x" + std::to_string(plain.height) + "]";
  }
  return result;
}

/// A region of a picture; `Source` is Random or anything else with below().
template <class Source>
JpegRegion random_region(Source& random, uint32_t width, uint32_t height) {
  JpegRegion region;
  region.width = 1 + random.below(width);
  region.height = 1 + random.below(height);
  switch (random.below(8)) {
    case 0:
      region.width = region.height = 1;
      break;
    case 1:
      region.width = width;
      break;
    case 2:
      region.height = height;
      break;
    case 3:
      region.width = std::min(width, 1 + random.below(20));
      break;
    default:
      break;
  }
  region.left = random.below(width - region.width + 1);
  region.top = random.below(height - region.height + 1);
  switch (random.below(6)) {  // edges deserve more than their share
    case 0:
      region.left = 0;
      break;
    case 1:
      region.left = width - region.width;
      break;
    case 2:
      region.top = 0;
      break;
    case 3:
      region.top = height - region.height;
      break;
    default:
      break;
  }
  return region;
}

}  // namespace fastloader::testing
