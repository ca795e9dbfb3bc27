// Pictures and masks that follow others: what was drawn for a lead is done to them.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "gated_source.h"
#include "pipeline/sample_decoder.h"
#include "png_samples.h"

namespace fastloader {
namespace {

using namespace testing;

using Kind = Operation::Kind;
using Output = ImageJob::Output;
using Scale = ImageTransform::Scale;

constexpr Following kMask{1, kTorchNearest, true};

ImageTransform random_transform(Random& random, bool resizes) {
  ImageTransform transform;
  if (resizes) {
    transform.scale = Scale::kExact;
    transform.exact = {random.between(1, 40), random.between(1, 40)};
    if (random.chance(50)) transform.random_crop = CropRange{};
  }
  if (!resizes || random.chance(50)) {
    transform.center_crop = ImageSize{random.between(1, 50), random.between(1, 50)};
  }
  transform.fill = {7, 7, 7};
  transform.horizontal_flip = 0.5;
  transform.vertical_flip = 0.5;
  return transform;
}

/// A PNG whose values are indices of so many bits as `random_png` chooses, and these indices.
std::pair<Bytes, Bytes> random_mask(Random& random, ImageSize& size) {
  for (;;) {
    PngSpec spec = random_png(random);
    if ((spec.color != 0 && spec.color != 3) || spec.depth == 16 || spec.width > 60) continue;
    size = {spec.height, spec.width};
    if (spec.color == 3) {
      spec.palette.clear();
      for (size_t i = 0; i < size_t{1} << spec.depth; ++i) {
        spec.palette.insert(spec.palette.end(), 3, static_cast<uint8_t>(i));
      }
    }
    const Bytes rgb = plain_pixels(spec);
    Bytes indices(rgb.size() / 3);
    const bool bit = spec.color == 0 && spec.depth == 1;
    for (size_t i = 0; i < indices.size(); ++i) {
      indices[i] = bit ? static_cast<uint8_t>(rgb[i * 3] != 0) : rgb[i * 3];
    }
    return {png_file(spec), indices};
  }
}

/// Which pixel of the picture comes to one of the result; nothing for the border.
std::optional<size_t> source_of(const SampleGeometry& geometry, size_t width, size_t y, size_t x) {
  const ImageSize made = geometry.made();
  if (geometry.horizontal_flip) x = made.width - 1 - x;
  if (geometry.vertical_flip) y = made.height - 1 - y;
  const CenterCrop& window = geometry.window;
  if (x < window.pad_left || y < window.pad_top) return std::nullopt;
  x -= window.pad_left;
  y -= window.pad_top;
  if (x >= window.box.width || y >= window.box.height) return std::nullopt;
  const auto nearest = [](size_t at, size_t from, size_t to) {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    const auto found = static_cast<size_t>(std::floor(static_cast<float>(at) * scale));
    return std::min(found, from - 1);
  };
  const CropBox& box = geometry.box;
  const size_t column = nearest(window.box.left + x, box.width, geometry.scaled.width);
  const size_t row = nearest(window.box.top + y, box.height, geometry.scaled.height);
  return (box.top + row) * width + box.left + column;
}

ImageJob job_over(std::vector<Bytes> files, const ImageTransform& transform, Following following) {
  ImageJob job;
  job.source = std::make_shared<MemorySource>(std::move(files));
  job.transform = transform;
  job.following = following;
  const ImageSize lead = transform.output().value();
  job.output_size = {lead.height * following.factor, lead.width * following.factor};
  if (following.mask) {
    job.output = Output::kIndices8;
    job.channels = 1;
  }
  validate(job);
  return job;
}

TEST(masks_take_the_nearest_index) {
  SampleDecoder decoder;  // one for all: nothing may pass from one to the next
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    ImageSize size;
    const auto [file, indices] = random_mask(random, size);
    ImageJob job = job_over({file}, random_transform(random, random.chance(70)), kMask);
    std::vector<uint16_t> classes(256);
    for (uint16_t& each : classes) each = static_cast<uint16_t>(random.below(256));
    const bool named = random.chance(30);
    if (named) job.classes = std::make_shared<const std::vector<uint16_t>>(classes);
    const SampleGeometry geometry = draw_geometry(job.transform, size, seed, 0);
    const ImageSize made = geometry.made();
    Bytes out(job.sample_bytes());
    EXPECT_EQ(out.size(), made.height * made.width);
    decoder.decode(job, 0, seed, out.data());
    bool right = true;
    for (size_t y = 0; y < made.height; ++y) {
      for (size_t x = 0; x < made.width; ++x) {
        const std::optional<size_t> from = source_of(geometry, size.width, y, x);
        const uint8_t index = from ? indices[*from] : uint8_t{7};
        right = right && out[y * made.width + x] == (named ? classes[index] : index);
      }
    }
    EXPECT(right);
  }
}

TEST(what_is_no_mask_is_left_to_others) {
  SampleDecoder decoder;
  ImageTransform transform;
  transform.center_crop = ImageSize{4, 4};
  Random random(3);
  Bytes out(16);
  for (int round = 0; round < 60; ++round) {
    const PngSpec spec = random_png(random);
    const ImageJob job = job_over({png_file(spec)}, transform, kMask);
    if (spec.color == 0 || spec.color == 3) continue;
    EXPECT_THROW(decoder.decode(job, 0, 1, out.data()), UnsupportedImage, "no indices");
  }
  const ImageJob job = job_over({{0xFF, 0xD8, 0xFF, 0xE0}}, transform, kMask);
  EXPECT_THROW(decoder.decode(job, 0, 1, out.data()), UnsupportedImage, "no PNG");
}

TEST(followers_of_several_sizes_show_the_same_part) {
  SampleDecoder decoder;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    PngSpec spec;
    spec.width = random.between(1, 30);
    spec.height = random.between(1, 30);
    Bytes rgb(size_t{spec.width} * spec.height * 3);
    for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(random.below(256));
    const auto factor = static_cast<uint32_t>(random.between(1, 4));
    const auto file_of = [&](uint32_t by) {
      PngSpec larger;
      larger.width = spec.width * by;
      larger.height = spec.height * by;
      for (size_t y = 0; y < larger.height; ++y) {
        larger.filtered.push_back(0);
        for (size_t x = 0; x < larger.width; ++x) {
          const uint8_t* pixel = rgb.data() + (y / by * spec.width + x / by) * 3;
          larger.filtered.insert(larger.filtered.end(), pixel, pixel + 3);
        }
      }
      return png_file(larger);
    };
    const ImageTransform transform = random_transform(random, false);
    Following following;
    following.factor = factor;
    if (random.chance(50)) following.resampling = 0;
    ImageJob lead = job_over({file_of(1)}, transform, Following{});
    ImageJob follower = job_over({file_of(factor)}, transform, following);
    Bytes small(lead.sample_bytes());
    Bytes large(follower.sample_bytes());
    decoder.decode(lead, 0, seed, small.data());
    decoder.decode(follower, 0, seed, large.data());
    const ImageSize made = transform.output().value();
    bool right = true;
    for (size_t y = 0; y < made.height * factor; ++y) {
      for (size_t x = 0; x < made.width * factor; ++x) {
        const uint8_t* one = small.data() + (y / factor * made.width + x / factor) * 3;
        const uint8_t* other = large.data() + (y * made.width * factor + x) * 3;
        right = right && std::equal(one, one + 3, other);
      }
    }
    EXPECT(right);
    follower.following->factor = 7;
    if (spec.width * factor % 7 == 0 && spec.height * factor % 7 == 0) continue;
    EXPECT_THROW(decoder.decode(follower, 0, seed, large.data()), InvalidArgument,
                 "is not 7 times as large as another one");
  }
}

TEST(operations_follow_by_their_numbers) {
  const auto numbers = [](Kind kind, std::vector<double> drawn, Following following) {
    return followed({kind, std::move(drawn)}, following).value().numbers;
  };
  const Following four{4, std::nullopt, false};
  const Following nearest{4, 0, false};
  EXPECT(numbers(Kind::kCrop, {1, -2, 3, 4}, four) == std::vector<double>({4, -8, 12, 16}));
  EXPECT(numbers(Kind::kResize, {5, 6, 2}, nearest) == std::vector<double>({20, 24, 0}));
  EXPECT(numbers(Kind::kPad, {1, 2, 3, 4, 1, 9, 8, 7}, four) ==
         std::vector<double>({4, 8, 12, 16, 1, 9, 8, 7}));
  EXPECT(numbers(Kind::kAffine, {1, 2, 3, 4, 5, 6, 2, 9, 8, 7}, nearest) ==
         std::vector<double>({1, 2, 12, 4, 5, 24, 0, 9, 8, 7}));
  EXPECT(numbers(Kind::kPerspective, {1, 2, 3, 4, 5, 6, 8, 4, 2, 9, 8, 7}, four) ==
         std::vector<double>({1, 2, 12, 4, 5, 24, 2, 1, 2, 9, 8, 7}));
  EXPECT(numbers(Kind::kRotate, {30, 2, 0, 9, 8, 7}, nearest) ==
         std::vector<double>({30, 0, 0, 9, 8, 7}));
  EXPECT(numbers(Kind::kRotate, {30, 2, 0, 5, 6, 9, 8, 7}, four) ==
         std::vector<double>({30, 2, 0, 20, 24, 9, 8, 7}));
  EXPECT(numbers(Kind::kBrightness, {0.5}, four) == std::vector<double>({0.5}));
  EXPECT(numbers(Kind::kPad, {1, 2, 3, 4, 0, 9, 9, 9}, kMask) ==
         std::vector<double>({1, 2, 3, 4, 0, 9, 0, 0}));
  EXPECT(!followed({Kind::kBrightness, {0.5}}, kMask));
  EXPECT_THROW(followed({Kind::kRotate, {30, 2, 1, 9, 8, 7}}, four), InvalidArgument, "expand");
  EXPECT_THROW(followed({Kind::kRotate, {30, 2, 0, 9, 8, 7}}, kMask), InvalidArgument, "mask");
  EXPECT_THROW(followed({Kind::kMixBegin, {1}}, kMask), InvalidArgument, "a mix of masks");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
