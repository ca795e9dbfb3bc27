#include "image/jpeg_decoder_layouts.h"

#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jpeglib.h>

namespace fastloader {
namespace {

// Proven: 2.1.5 and 3.2.0, the oldest and the newest that the tests were run with.
constexpr bool kLibraryIsProven = LIBJPEG_TURBO_VERSION_NUMBER >= 2001005;

constexpr JpegLayout kProven[] = {
    {"grey", 1, {{1, 1}}},
    {"4:4:4", 3, {{1, 1}, {1, 1}, {1, 1}}},
    {"4:2:2", 3, {{2, 1}, {1, 1}, {1, 1}}},
    {"4:2:0", 3, {{2, 2}, {1, 1}, {1, 1}}},
    {"4:4:0", 3, {{1, 2}, {1, 1}, {1, 1}}},
    {"4:1:1", 3, {{4, 1}, {1, 1}, {1, 1}}},
    {"4 components", 4, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
    {"4 components, 4:2:0", 4, {{2, 2}, {1, 1}, {1, 1}, {2, 2}}},
};

bool same(const JpegSampling& one, const JpegSampling& other) {
  return one.horizontal == other.horizontal && one.vertical == other.vertical;
}

}  // namespace

const JpegLayout* proven_jpeg_layouts(size_t* count) {
  *count = kLibraryIsProven ? sizeof kProven / sizeof kProven[0] : 0;
  return kProven;
}

bool jpeg_layout_is_proven(int components, const JpegSampling* sampling) {
  size_t count = 0;
  const JpegLayout* layouts = proven_jpeg_layouts(&count);
  for (size_t i = 0; i < count; ++i) {
    bool equal = layouts[i].components == components;
    for (int c = 0; equal && c < components; ++c) equal = same(layouts[i].sampling[c], sampling[c]);
    if (equal) return true;
  }
  return false;
}

}  // namespace fastloader
