#include "image/jpeg/libjpeg/layouts.h"

#include "image/jpeg/libjpeg/probe.h"

namespace fastloader {
namespace {

constexpr JpegLayout kLayouts[kJpegLayouts] = {
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

const JpegLayout* jpeg_layouts() { return kLayouts; }

bool jpeg_layout_is_proven(int components, const JpegSampling* sampling) {
  for (const JpegLayout& layout : kLayouts) {
    bool equal = layout.components == components;
    for (int c = 0; equal && c < components; ++c) equal = same(layout.sampling[c], sampling[c]);
    if (equal) return jpeg_skips_exactly(layout);
  }
  return false;
}

}  // namespace fastloader
