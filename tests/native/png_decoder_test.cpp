#include "image/png/decoder.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/picture_decoder.h"
#include "png_samples.h"
#include "rgb_regions.h"

namespace fastloader {
namespace {

using namespace testing;

TEST(regions_are_the_pixels_of_the_standard) {
  PngDecoder decoder;  // one for all: nothing may pass from one to the next
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const PngSpec spec = random_png(random);
    const Bytes file = png_file(spec, random.between(1, 5000));
    const PictureSize size = decoder.open(file.data(), file.size());
    EXPECT_EQ(size.width, spec.width);
    EXPECT_EQ(size.height, spec.height);
    const Bytes wanted = plain_pixels(spec);
    PictureOptions options;
    options.check_below = random.chance(50);
    const PictureRegion whole{0, 0, spec.width, spec.height};
    EXPECT(decode(decoder, file, whole, options) == wanted);
    const PictureRegion region = region_within(random, spec.width, spec.height);
    EXPECT(decode(decoder, file, region, options) == cropped(wanted, spec.width, region));
  }
}

TEST(rows_of_the_wrong_length_are_errors) {
  PngDecoder decoder;
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    PngSpec spec = random_png(random);
    const bool more = random.chance(50);
    if (more) {
      spec.filtered.push_back(0);
    } else {
      spec.filtered.pop_back();
    }
    const Bytes file = png_file(spec);
    EXPECT_THROW(decode(decoder, file, {0, 0, spec.width, spec.height}), DecodeError, "broken PNG");
  }
}

TEST(a_large_picture_is_refused_before_its_data) {
  PngDecoder decoder;
  PngSpec spec;
  spec.width = spec.height = 50000;
  spec.filtered = {1, 2, 3};
  const Bytes file = png_file(spec);
  EXPECT_THROW(decoder.open(file.data(), file.size()), RefusedImage, "2500000000 pixels");
}

TEST(stops_between_two_pieces) {
  PngDecoder decoder;
  Random random(6);
  const PngSpec spec = random_png(random);
  const Bytes file = png_file(spec);
  const std::atomic<bool> stop{true};
  PictureOptions options;
  options.stop = &stop;
  EXPECT_THROW(decode(decoder, file, {0, 0, spec.width, spec.height}, options), Stopped, "wanted");
}

TEST(memory_of_an_outlier_is_given_back) {
  PictureDecoder decoder;
  PngSpec spec;
  spec.width = spec.height = 3000;
  spec.interlaced = true;
  for (const PngPass& pass : passes_of(spec)) {
    const size_t row = columns_of(spec, pass) * 3 + 1;
    spec.filtered.resize(spec.filtered.size() + row * ((3000 + pass.dy - 1 - pass.y) / pass.dy));
  }
  const Bytes large = png_file(spec, 1 << 20);
  decoder.open(large.data(), large.size());
  decoder.begin({0, 0, 3000, 3000});
  EXPECT_EQ(decoder.read_row()[0], 0);
  EXPECT(decoder.scratch_bytes() > 3000 * 3000 * 3);
  decoder.give_back();  // whatever comes next, and the rows that nobody has read
  EXPECT(decoder.scratch_bytes() < 1 << 20);
  PngSpec small;
  small.filtered = {0, 1, 2, 3};
  const Bytes file = png_file(small);
  decoder.open(file.data(), file.size());
  decoder.begin({0, 0, 1, 1});
  EXPECT_EQ(decoder.read_row()[2], 3);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
