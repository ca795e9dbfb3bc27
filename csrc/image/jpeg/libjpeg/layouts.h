#pragma once

#include <cstddef>

#include "image/jpeg/header.h"

namespace fastloader {

/// A kind of picture for which leaving out rows and columns can give the pixels of a whole decode.
struct JpegLayout {
  const char* name;
  int components;
  JpegSampling sampling[kMaxJpegComponents];
};

constexpr size_t kJpegLayouts = 8;

/// Those kinds, each of them put to the test by jpeg_decoder_test with libjpeg-turbo 2.1.5
/// and 3.2.0.
const JpegLayout* jpeg_layouts();

/// The one of this sampling for which the libjpeg that is loaded passes the test too
/// (jpeg/probe.h).
bool jpeg_layout_is_proven(int components, const JpegSampling* sampling);

}  // namespace fastloader
