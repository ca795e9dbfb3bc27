#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

constexpr int kMaxJpegComponents = 4;

/// Sampling factors of one component: 1 to 4 each. 4:2:0 is {2, 2}, {1, 1}, {1, 1}.
struct JpegSampling {
  uint8_t horizontal = 1;
  uint8_t vertical = 1;
};

/// A kind of picture for which leaving out rows and columns gives the pixels of a whole decode.
struct JpegLayout {
  const char* name;
  int components;
  JpegSampling sampling[kMaxJpegComponents];
};

/// Those kinds, each of them put to the test by jpeg_decoder_test. Empty when compiled with a
/// libjpeg-turbo that the tests were not run with: jpeg_crop_scanline() and jpeg_skip_scanlines()
/// were repaired many times on the way to 2.1.5.
const JpegLayout* proven_jpeg_layouts(size_t* count);

bool jpeg_layout_is_proven(int components, const JpegSampling* sampling);

}  // namespace fastloader
