#include "image/image_transform.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "actor.h"
#include "base/error.h"
#include "check.h"

namespace fastloader {
namespace {

using namespace testing;

using Scale = ImageTransform::Scale;

ImageTransform training() {
  ImageTransform transform;
  transform.random_crop = CropRange{};
  transform.scale = Scale::kExact;
  transform.exact = {224, 192};
  transform.horizontal_flip = 0.5;
  transform.vertical_flip = 0.25;
  transform.random_filter = true;
  return transform;
}

ImageTransform evaluation() {
  ImageTransform transform;
  transform.scale = Scale::kShorter;
  transform.shorter = 256;
  transform.center_crop = ImageSize{224, 200};
  return transform;
}

bool same(const SampleGeometry& a, const SampleGeometry& b) {
  return a.box == b.box && a.scaled == b.scaled && a.window.box == b.window.box &&
         a.window.pad_left == b.window.pad_left && a.window.pad_top == b.window.pad_top &&
         a.window.pad_right == b.window.pad_right && a.window.pad_bottom == b.window.pad_bottom &&
         a.filter == b.filter && a.horizontal_flip == b.horizontal_flip &&
         a.vertical_flip == b.vertical_flip;
}

TEST(the_output_is_the_last_size_that_is_fixed) {
  ImageTransform transform;
  EXPECT(!transform.output());
  transform.scale = Scale::kShorter;
  transform.shorter = 9;
  EXPECT(!transform.output());
  transform.center_crop = ImageSize{5, 6};
  EXPECT((transform.output() == ImageSize{5, 6}));
  transform.scale = Scale::kExact;
  transform.exact = {7, 8};
  EXPECT((transform.output() == ImageSize{5, 6}));
  transform.center_crop.reset();
  EXPECT((transform.output() == ImageSize{7, 8}));
  for (const Scale scale : {Scale::kCover, Scale::kFit}) {
    transform.scale = scale;
    EXPECT(!transform.output());
    transform.center_crop = ImageSize{5, 6};
    validate(transform);
    transform.exact.width = 0;
    EXPECT_THROW(validate(transform), InvalidArgument, "to a width");
    transform.exact.width = 8;
    transform.center_crop.reset();
  }
}

TEST(chains_that_cannot_work_are_refused) {
  validate(training());
  validate(evaluation());
  using Change = std::function<void(ImageTransform&)>;
  const auto refused = [](ImageTransform transform, const Change& change, const char* part) {
    change(transform);
    EXPECT_THROW(validate(transform), InvalidArgument, part);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 1.1, nan, std::numeric_limits<double>::infinity()}) {
    refused(training(), [=](auto& t) { t.horizontal_flip = bad; }, "horizontal flip");
    refused(training(), [=](auto& t) { t.vertical_flip = bad; }, "vertical flip");
  }
  refused(training(), [=](auto& t) { t.random_crop->min_scale = nan; }, "scale");
  refused(training(), [](auto& t) { t.random_crop->max_ratio = 0.1; }, "ratio");
  refused(training(), [](auto& t) { t.scale = Scale::kKeep; }, "random resized crop");
  for (const size_t bad : {size_t{0}, kMaxImageEdge + 1, SIZE_MAX}) {
    refused(training(), [=](auto& t) { t.exact.height = bad; }, "to a height");
    refused(training(), [=](auto& t) { t.exact.width = bad; }, "to a width");
    refused(evaluation(), [=](auto& t) { t.shorter = bad; }, "shorter edge");
    refused(evaluation(), [=](auto& t) { t.max_size = bad; }, "longest edge");
    refused(evaluation(), [=](auto& t) { t.center_crop->height = bad; }, "to a height");
    refused(evaluation(), [=](auto& t) { t.center_crop->width = bad; }, "to a width");
  }
  refused(evaluation(), [](auto& t) { t.max_size = 256; }, "strictly greater");
  ImageTransform fits = evaluation();
  fits.max_size = 257;
  validate(fits);
}

TEST(an_evaluation_chain_is_torchvisions) {
  const SampleGeometry geometry = draw_geometry(evaluation(), {375, 500}, 1, 2);
  EXPECT((geometry.box == CropBox{0, 0, 500, 375}));
  EXPECT((geometry.scaled == ImageSize{256, 341}));
  EXPECT((geometry.window.box == CropBox{70, 16, 200, 224}));  // round(70.5) is 70
  EXPECT(!geometry.window.padded());
  EXPECT(!geometry.horizontal_flip && !geometry.vertical_flip);
  ImageTransform exact = evaluation();
  exact.scale = Scale::kExact;
  exact.exact = {100, 300};
  const SampleGeometry padded = draw_geometry(exact, {375, 500}, 1, 2);
  EXPECT((padded.window.box == CropBox{50, 0, 200, 100}));
  EXPECT_EQ(padded.window.pad_top, 62u);
  EXPECT_EQ(padded.window.pad_bottom, 62u);
  ImageTransform limited = evaluation();
  limited.max_size = 300;
  EXPECT((draw_geometry(limited, {375, 500}, 1, 2).scaled == ImageSize{225, 300}));
  limited.shorter = 1;
  limited.max_size = 2;
  EXPECT_THROW(draw_geometry(limited, {1, 5}, 1, 2), InvalidArgument, "5x1 pixels is too thin");
}

TEST(the_geometry_depends_on_seed_and_index_only) {
  constexpr uint64_t kCount = 400;
  const auto size_of = [](uint64_t i) { return ImageSize{300 + i % 70, 200 + i % 90}; };
  std::vector<SampleGeometry> first;
  for (uint64_t i = 0; i < kCount; ++i) {
    first.push_back(draw_geometry(training(), size_of(i), 42, i));
  }
  const auto again = [&](uint64_t step) {
    for (uint64_t k = 0; k < kCount; ++k) {
      const uint64_t i = k * step % kCount;
      EXPECT(same(draw_geometry(training(), size_of(i), 42, i), first[i]));
    }
  };
  Actor forwards([&] { again(1); });
  Actor backwards([&] { again(kCount - 1); });
  Actor scattered([&] { again(7); });
  forwards.join();
  backwards.join();
  scattered.join();
  size_t differs = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    for (const uint64_t seed : {uint64_t{43}, 42 + (uint64_t{1} << 32)}) {
      differs += same(draw_geometry(training(), size_of(i), seed, i), first[i]) ? 0 : 1;
    }
    const uint64_t other = i + (uint64_t{1} << 32);
    differs += same(draw_geometry(training(), size_of(i), 42, other), first[i]) ? 0 : 1;
  }
  EXPECT_EQ(differs, 3 * kCount);
}

/// Written down once: a change of these changes every crop of every user.
TEST(the_crops_of_a_seed_stay_what_they_are) {
  const SampleGeometry one = draw_geometry(training(), {375, 500}, 1234, 0);
  const SampleGeometry two = draw_geometry(training(), {375, 500}, 1234, 1);
  EXPECT((one.box == CropBox{4, 0, 439, 370}));
  EXPECT((two.box == CropBox{140, 29, 235, 302}));
  EXPECT(one.horizontal_flip && !one.vertical_flip);
  EXPECT(!two.horizontal_flip && !two.vertical_flip);
  EXPECT(one.filter == ResizeFilter::kBicubic && two.filter == ResizeFilter::kBilinear);
}

TEST(steps_draw_from_numbers_of_their_own) {
  ImageTransform crop_only = training();
  crop_only.horizontal_flip = crop_only.vertical_flip = 0;
  ImageTransform flips_only = training();
  flips_only.random_crop.reset();
  size_t bicubic = 0;
  size_t both_flips[2][2] = {};
  for (uint64_t i = 0; i < 4000; ++i) {
    const ImageSize picture{100, 150};
    const SampleGeometry all = draw_geometry(training(), picture, 5, i);
    EXPECT(draw_geometry(crop_only, picture, 5, i).box == all.box);
    const SampleGeometry flips = draw_geometry(flips_only, picture, 5, i);
    EXPECT(flips.horizontal_flip == all.horizontal_flip);
    EXPECT(flips.vertical_flip == all.vertical_flip);
    EXPECT(flips.filter == all.filter);
    bicubic += all.filter == ResizeFilter::kBicubic ? 1 : 0;
    ImageTransform fixed = training();
    fixed.random_filter = false;
    EXPECT(draw_geometry(fixed, picture, 5, i).filter == ResizeFilter::kBilinear);
    EXPECT(draw_geometry(fixed, picture, 5, i).box == all.box);
    ++both_flips[all.horizontal_flip ? 1 : 0][all.vertical_flip ? 1 : 0];
  }
  EXPECT(std::abs(static_cast<double>(bicubic) - 2000) < 190);
  // 1500, 500, 1500, 500 by their probabilities; six deviations of the most uncertain are 180.
  for (const auto& row : both_flips) {
    EXPECT(std::abs(static_cast<double>(row[0]) - 1500) < 190);
    EXPECT(std::abs(static_cast<double>(row[1]) - 500) < 130);
  }
}

TEST(crops_and_flips_are_distributed_as_they_should) {
  constexpr int kCount = 20000;
  ImageTransform transform = training();
  transform.random_crop = CropRange{0.2, 0.5, 0.8, 1.25};  // always fits at the first attempt
  const ImageSize picture{1000, 1000};
  double area = 0;
  double log_ratio = 0;
  double left = 0;
  double top = 0;
  double least = 1;
  double most = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const SampleGeometry geometry = draw_geometry(transform, picture, 9, i);
    const CropBox& box = geometry.box;
    EXPECT(box.left + box.width <= 1000 && box.top + box.height <= 1000);
    const double part = static_cast<double>(box.width * box.height) / 1e6;
    least = std::min(least, part);
    most = std::max(most, part);
    area += part / kCount;
    log_ratio +=
        std::log(static_cast<double>(box.width) / static_cast<double>(box.height)) / kCount;
    left += static_cast<double>(box.left) / static_cast<double>(1000 - box.width) / kCount;
    top += static_cast<double>(box.top) / static_cast<double>(1000 - box.height) / kCount;
  }
  EXPECT(std::abs(area - 0.35) < 0.004);
  EXPECT(std::abs(log_ratio) < 0.006);
  EXPECT(std::abs(left - 0.5) < 0.013);
  EXPECT(std::abs(top - 0.5) < 0.013);
  EXPECT(least > 0.198 && least < 0.202);
  EXPECT(most > 0.498 && most < 0.502);
}

TEST(probabilities_of_0_and_1_are_certain) {
  ImageTransform never = evaluation();
  ImageTransform always = evaluation();
  always.horizontal_flip = always.vertical_flip = 1;
  for (uint64_t i = 0; i < 2000; ++i) {
    const SampleGeometry a = draw_geometry(never, {300, 300}, i, i);
    const SampleGeometry b = draw_geometry(always, {300, 300}, i, i);
    EXPECT(!a.horizontal_flip && !a.vertical_flip && b.horizontal_flip && b.vertical_flip);
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
