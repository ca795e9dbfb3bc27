#include "image/webp/decoder.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "rgb_regions.h"
#include "webp_samples.h"

namespace fastloader {
namespace {

using namespace testing;

TEST(regions_are_parts_of_a_whole_decode) {
  WebpDecoder decoder;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    const WebpSample made = random_webp(random);
    const Bytes wanted = plain_pixels(made.file, made.width, made.height);
    PictureOptions options;
    options.check_below = random.chance(50);
    for (int round = 0; round < 4; ++round) {
      const PictureRegion region = region_within(random, made.width, made.height);
      EXPECT(decode(decoder, made.file, region, options) == cropped(wanted, made.width, region));
    }
  }
}

TEST(cut_off_anywhere_is_an_error) {
  WebpDecoder decoder;
  Random random(3);
  const WebpSample made = random_webp(random);
  for (size_t size = 0; size < made.file.size(); ++size) {
    const Bytes file(made.file.begin(), made.file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(decoder.open(file.data(), file.size()), DecodeError, "WebP");
  }
}

TEST(a_large_picture_is_refused_before_its_data) {
  WebpDecoder decoder;
  Random random(4);
  const WebpSample made = random_webp(random);
  PictureOptions options;
  options.pixel_limit = uint64_t{made.width} * made.height - 1;
  EXPECT_THROW(decoder.open(made.file.data(), made.file.size(), options), RefusedImage, "exceeds");
}

TEST(stops_between_two_pieces) {
  WebpDecoder decoder;
  Random random(5);
  const WebpSample made = random_webp(random);
  const std::atomic<bool> stop{true};
  PictureOptions options;
  options.stop = &stop;
  EXPECT_THROW(decode(decoder, made.file, {0, 0, 1, 1}, options), Stopped, "wanted");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
