#include "base/error.h"
#include "fuzz_loop.h"
#include "image/orientation.h"
#include "image/webp/decoder.h"
#include "rgb_regions.h"
#include "webp_samples.h"

// Any bytes, any region, any options. A region has a part of the pixels that libwebp's decode in
// one call gives, and with check_below it fails where that fails. It may fail where that does not:
// given the file in pieces, libwebp waits for bytes that it makes do without in one call.

namespace {

using namespace fastloader;
using testing::Bytes;
using testing::Random;

constexpr uint64_t kPixelLimit = 1 << 20;

/// Whether the last input was left as it was made.
bool intact;

Bytes make(Random& random) {
  Bytes file = testing::random_webp(random).file;
  intact = random.chance(10);
  if (!intact) fuzz::damage(file, random);
  return file;
}

bool check(const Bytes& bytes, Random& random) {
  static WebpDecoder decoder;  // one for all inputs: nothing may pass from one to the next
  const Bytes file(bytes);     // of exactly that size, so that a step beyond it is seen
  read_orientation(file.data(), file.size());
  PictureOptions options;
  options.pixel_limit = kPixelLimit;
  PictureSize size;
  try {
    size = decoder.open(file.data(), file.size(), options);
  } catch (const DecodeError&) {
    if (intact) fuzz::give_up("webp_fuzz: it does not open");
    return false;
  }
  const Bytes whole = testing::plain_pixels(file, size.width, size.height);
  for (int round = 0; round < 3; ++round) {
    options.check_below = round != 1;
    const PictureRegion region = round == 0
                                     ? PictureRegion{0, 0, size.width, size.height}
                                     : testing::region_within(random, size.width, size.height);
    try {
      const Bytes part = testing::decode(decoder, file, region, options);
      if (whole.empty() && options.check_below) fuzz::give_up("webp_fuzz: the whole fails");
      if (!whole.empty() && part != testing::cropped(whole, size.width, region)) {
        fuzz::give_up("webp_fuzz: the region has other pixels");
      }
    } catch (const DecodeError&) {
      if (intact) fuzz::give_up("webp_fuzz: the region fails");
    }
  }
  if (intact && whole.empty()) fuzz::give_up("webp_fuzz: the whole fails");
  return !whole.empty();
}

}  // namespace

int main(int argc, char** argv) { return fastloader::fuzz::run(argc, argv, make, check); }
