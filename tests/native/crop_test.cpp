#include "image/crop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/draw_numbers.h"
#include "image/philox.h"

namespace fastloader {
namespace {

using namespace testing;

// ---- Random numbers -----------------------------------------------------------------------------

TEST(philox_gives_the_published_answers) {
  // Random123's kat_vectors, philox4x32 with 10 rounds.
  using Counter = std::array<uint32_t, 4>;
  EXPECT(philox4x32({0, 0, 0, 0}, {0, 0}) ==
         (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
         (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(draws_follow_the_documented_layout) {
  constexpr uint64_t kSeed = 0x0123456789abcdef;
  constexpr uint64_t kIndex = 0xfedcba9876543210;
  Draws draws(kSeed, kIndex, 42);
  for (uint32_t block = 0; block < 3; ++block) {
    const auto words = philox4x32({block, 42, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
    EXPECT_EQ(draws.bits(), words[0] | static_cast<uint64_t>(words[1]) << 32);
    EXPECT_EQ(draws.bits(), words[2] | static_cast<uint64_t>(words[3]) << 32);
  }
  Draws zero(0, 0, 0);
  EXPECT_EQ(zero.uniform(), static_cast<double>(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0);
}

TEST(draws_depend_on_seed_index_and_operation) {
  const uint64_t first = Draws(1, 2, 3).bits();
  EXPECT_EQ(Draws(1, 2, 3).bits(), first);
  for (const Draws& other :
       {Draws(2, 2, 3), Draws(1, 3, 3), Draws(1, 2, 4), Draws(1 + (uint64_t{1} << 32), 2, 3),
        Draws(1, 2 + (uint64_t{1} << 32), 3)}) {
    EXPECT(Draws(other).bits() != first);
  }
}

/// Sum of squared deviations over expectation; its mean is cells - 1, its variance twice that.
double chi_squared(const std::vector<size_t>& counts, double expected) {
  double sum = 0;
  for (size_t count : counts) {
    const double deviation = static_cast<double>(count) - expected;
    sum += deviation * deviation / expected;
  }
  return sum;
}

bool plausible(const std::vector<size_t>& counts) {
  double total = 0;
  for (size_t count : counts) total += static_cast<double>(count);
  const double freedom = static_cast<double>(counts.size()) - 1;
  const double chi = chi_squared(counts, total / static_cast<double>(counts.size()));
  return std::fabs(chi - freedom) < 5 * std::sqrt(2 * freedom);
}

TEST(uniform_numbers_are_uniform) {
  std::vector<size_t> tenths(10);
  std::vector<size_t> sevenths(7);
  for (uint64_t index = 0; index < 20000; ++index) {
    Draws draws(3, index, 0);
    const double value = draws.uniform();
    EXPECT(value >= 0 && value < 1);
    ++tenths[static_cast<size_t>(value * 10)];
    const uint64_t whole = draws.below(7);
    EXPECT(whole < 7);
    ++sevenths[whole];
    EXPECT_EQ(draws.below(1), uint64_t{0});
    EXPECT(draws.below(uint64_t{1} << 32) < uint64_t{1} << 32);
    const double between = draws.uniform(-2, 5);
    EXPECT(between >= -2 && between < 5);
  }
  EXPECT(plausible(tenths));
  EXPECT(plausible(sevenths));
}

TEST(flips_happen_as_often_as_they_should) {
  size_t flips = 0;
  for (uint64_t index = 0; index < 10000; ++index) {
    Draws draws(4, index, kDrawHorizontalFlip);
    if (random_flip(0.3, draws)) ++flips;
    EXPECT(!random_flip(0, draws));
    EXPECT(random_flip(1, draws));
  }
  EXPECT(flips > 2800 && flips < 3200);
}

// ---- RandomResizedCrop --------------------------------------------------------------------------

/// torchvision's get_params, with its four kinds of draws taken from `draws` in the documented
/// order.
CropBox reference_crop(size_t height, size_t width, const CropRange& range, Draws draws) {
  const double area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double u = draws.uniform();
    const double v = draws.uniform();
    const double target = area * (range.min_scale + (range.max_scale - range.min_scale) * u);
    const double low = std::log(range.min_ratio);
    const double aspect = std::exp(low + (std::log(range.max_ratio) - low) * v);
    const auto w = std::llrint(std::sqrt(target * aspect));  // to even, as Python's round()
    const auto h = std::llrint(std::sqrt(target / aspect));
    if (0 < w && w <= static_cast<long long>(width) && 0 < h &&
        h <= static_cast<long long>(height)) {
      const uint64_t top = draws.below(height - static_cast<size_t>(h) + 1);
      const uint64_t left = draws.below(width - static_cast<size_t>(w) + 1);
      return {left, top, static_cast<size_t>(w), static_cast<size_t>(h)};
    }
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  size_t w = width;
  size_t h = height;
  if (ratio < range.min_ratio) {
    h = static_cast<size_t>(std::llrint(static_cast<double>(w) / range.min_ratio));
  } else if (ratio > range.max_ratio) {
    w = static_cast<size_t>(std::llrint(static_cast<double>(h) * range.max_ratio));
  }
  return {(width - w) / 2, (height - h) / 2, w, h};
}

TEST(random_crops_are_those_of_the_definition) {
  const CropRange ranges[] = {
      {}, {0.2, 1, 0.5, 2}, {1, 1, 1, 1}, {0.9, 1, 1, 1}, {0.01, 0.02, 3, 9}};
  uint64_t index = 0;
  for (const CropRange& range : ranges) {
    validate(range);
    for (const ImageSize& size : {ImageSize{375, 500}, ImageSize{500, 375}, ImageSize{7, 9},
                                  ImageSize{3, 2000}, ImageSize{2000, 3}, ImageSize{224, 224}}) {
      for (int i = 0; i < 200; ++i, ++index) {
        Draws draws(11, index, kDrawCrop);
        const CropBox box = random_resized_crop(size, range, draws);
        EXPECT(box == reference_crop(size.height, size.width, range, Draws(11, index, kDrawCrop)));
        EXPECT(box.width >= 1 && box.left + box.width <= size.width);
        EXPECT(box.height >= 1 && box.top + box.height <= size.height);
      }
    }
  }
}

TEST(random_crops_are_spread_as_they_should_be) {
  std::vector<size_t> scales(8);
  std::vector<size_t> ratios(8);
  std::vector<size_t> tops(8);
  std::vector<size_t> lefts(8);
  const double log_ratio = std::log(4.0 / 3.0);
  const CropRange small{0.08, 0.5, 3.0 / 4.0, 4.0 / 3.0};  // always fits at the first attempt
  const ImageSize size{100000, 100000};
  const auto cell = [](double from_0_to_1) {
    return static_cast<size_t>(std::clamp(from_0_to_1 * 8, 0.0, 7.0));
  };
  for (uint64_t index = 0; index < 16000; ++index) {
    Draws draws(5, index, kDrawCrop);
    const CropBox box = random_resized_crop(size, small, draws);
    const double width = static_cast<double>(box.width);
    const double height = static_cast<double>(box.height);
    ++scales[cell((width * height / 1e10 - 0.08) / 0.42)];
    ++ratios[cell((std::log(width / height) + log_ratio) / (2 * log_ratio))];
    ++tops[cell(static_cast<double>(box.top) / (100000 - height))];
    ++lefts[cell(static_cast<double>(box.left) / (100000 - width))];
  }
  EXPECT(plausible(scales));
  EXPECT(plausible(ratios));
  EXPECT(plausible(tops));
  EXPECT(plausible(lefts));
}

TEST(crops_that_never_fit_fall_back_to_the_centre) {
  const auto crop = [](size_t height, size_t width, const CropRange& range) {
    Draws draws(1, 1, kDrawCrop);
    return random_resized_crop({height, width}, range, draws);
  };
  const CropRange whole{1, 1, 3.0 / 4.0, 4.0 / 3.0};
  EXPECT(crop(1000, 10, whole) == (CropBox{0, 493, 10, 13}));
  EXPECT(crop(10, 1000, whole) == (CropBox{493, 0, 13, 10}));
  EXPECT(crop(100, 100, CropRange{4, 9, 1, 1}) == (CropBox{0, 0, 100, 100}));
  EXPECT(crop(1, 5, CropRange{4, 9, 2.5, 2.5}) == (CropBox{1, 0, 2, 1}));  // 2.5 to even
  EXPECT(crop(1, 9, CropRange{4, 9, 3.5, 3.5}) == (CropBox{2, 0, 4, 1}));
  EXPECT(crop(1, 9, CropRange{99, 99, 0.1, 0.2}) == (CropBox{4, 0, 1, 1}));  // never empty
  EXPECT(crop(1, 1, CropRange{}) == (CropBox{0, 0, 1, 1}));
}

TEST(ranges_that_can_never_work_are_refused) {
  validate(CropRange{});
  validate(CropRange{0, 0, 1, 1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(validate(CropRange{1, 0.5, 1, 1}), InvalidArgument, "scale");
  EXPECT_THROW(validate(CropRange{-1, 0.5, 1, 1}), InvalidArgument, "scale");
  EXPECT_THROW(validate(CropRange{0, nan, 1, 1}), InvalidArgument, "scale");
  EXPECT_THROW(validate(CropRange{0, infinity, 1, 1}), InvalidArgument, "scale");
  EXPECT_THROW(validate(CropRange{0, 1, 0, 1}), InvalidArgument, "ratio");
  EXPECT_THROW(validate(CropRange{0, 1, 2, 1}), InvalidArgument, "ratio");
  EXPECT_THROW(validate(CropRange{0, 1, nan, 1}), InvalidArgument, "ratio");
  Draws draws(1, 1, 1);
  EXPECT_THROW(random_resized_crop({0, 5}, CropRange{}, draws), InvalidArgument, "5 x 0");
}

// ---- CenterCrop and Resize ----------------------------------------------------------------------

TEST(centre_crops_are_those_of_torchvision) {
  const auto box = [](size_t height, size_t width, size_t crop_height, size_t crop_width) {
    const CenterCrop crop = center_crop({height, width}, {crop_height, crop_width});
    EXPECT(!crop.padded());
    return crop.box;
  };
  EXPECT(box(256, 341, 224, 224) == (CropBox{58, 16, 224, 224}));  // 58.5 to even
  EXPECT(box(256, 343, 224, 224) == (CropBox{60, 16, 224, 224}));  // 59.5 to even
  EXPECT(box(224, 224, 224, 224) == (CropBox{0, 0, 224, 224}));
  EXPECT(box(5, 4, 4, 3) == (CropBox{0, 0, 3, 4}));  // 0.5 to even
  EXPECT(box(5, 4, 2, 1) == (CropBox{2, 2, 1, 2}));  // 1.5 to even
}

TEST(centre_crops_larger_than_the_image_are_padded) {
  const CenterCrop both = center_crop({100, 51}, {224, 224});
  EXPECT(both.padded());
  EXPECT(both.box == (CropBox{0, 0, 51, 100}));
  EXPECT_EQ(both.pad_left, size_t{86});
  EXPECT_EQ(both.pad_right, size_t{87});
  EXPECT_EQ(both.pad_top, size_t{62});
  EXPECT_EQ(both.pad_bottom, size_t{62});
  const CenterCrop one = center_crop({100, 341}, {224, 224});
  EXPECT(one.box == (CropBox{58, 0, 224, 100}));
  EXPECT_EQ(one.pad_left + one.pad_right, size_t{0});
  EXPECT_EQ(one.pad_top, size_t{62});
  for (size_t image = 1; image < 30; ++image) {
    for (size_t crop = 1; crop < 30; ++crop) {
      const CenterCrop some = center_crop({image, 7}, {crop, 9});
      EXPECT_EQ(some.pad_top + some.box.height + some.pad_bottom, crop);
      EXPECT_EQ(some.pad_left + some.box.width + some.pad_right, size_t{9});
      EXPECT(some.box.top + some.box.height <= image);
    }
  }
  EXPECT_THROW(center_crop({0, 5}, {1, 1}), InvalidArgument, "image");
  EXPECT_THROW(center_crop({5, 5}, {1, 0}), InvalidArgument, "crop");
}

TEST(resized_sizes_are_those_of_torchvision) {
  EXPECT(resize_shorter_edge({375, 500}, 256) == (ImageSize{256, 341}));
  EXPECT(resize_shorter_edge({500, 375}, 256) == (ImageSize{341, 256}));
  EXPECT(resize_shorter_edge({333, 333}, 256) == (ImageSize{256, 256}));
  EXPECT(resize_shorter_edge({3, 2}, 5) == (ImageSize{7, 5}));
  EXPECT(resize_shorter_edge({375, 500}, 256, 300) == (ImageSize{225, 300}));  // of 341, not 341.3
  EXPECT(resize_shorter_edge({375, 500}, 256, 341) == (ImageSize{256, 341}));
  EXPECT(resize_shorter_edge({1, 1000}, 10, 100) == (ImageSize{0, 100}));
  EXPECT_THROW(resize_shorter_edge({5, 5}, 256, 256), InvalidArgument, "strictly greater");
  EXPECT_THROW(resize_shorter_edge({5, 5}, 0), InvalidArgument, "shorter edge");
  EXPECT_THROW(resize_shorter_edge({5, 0}, 5), InvalidArgument, "image");
}

/// What timm 1.0.31's ResizeKeepRatio.get_params gives.
TEST(sizes_that_keep_the_shape_are_those_of_timm) {
  EXPECT(resize_to_cover({375, 500}, {256, 256}) == (ImageSize{256, 341}));
  EXPECT(resize_to_fit({375, 500}, {256, 256}) == (ImageSize{192, 256}));
  EXPECT(resize_to_cover({375, 500}, {100, 256}) == (ImageSize{192, 256}));
  EXPECT(resize_to_fit({375, 500}, {100, 256}) == (ImageSize{100, 133}));
  EXPECT(resize_to_cover({333, 333}, {10, 10}) == (ImageSize{10, 10}));
  EXPECT(resize_to_fit({3, 4}, {2, 2}) == (ImageSize{2, 2}));  // round(1.5)
  EXPECT(resize_to_fit({5, 4}, {2, 2}) == (ImageSize{2, 2}));
  EXPECT(resize_to_fit({1, 4}, {2, 2}) == (ImageSize{0, 2}));  // round(0.5)
  EXPECT(resize_to_fit({1, 1000}, {10, 10}) == (ImageSize{0, 10}));
  EXPECT(resize_to_cover({1, 1000}, {10, 10}) == (ImageSize{10, 10000}));
  EXPECT_THROW(resize_to_fit({0, 5}, {2, 2}), InvalidArgument, "image");
  EXPECT_THROW(resize_to_cover({5, 5}, {2, 0}), InvalidArgument, "target");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
