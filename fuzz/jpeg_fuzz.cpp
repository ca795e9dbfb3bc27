#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "jpeg_compare.h"
#include "jpeg_samples.h"

// Any bytes, any region of them, any options: the decoder gives exactly what libjpeg's whole decode
// gives, cropped, or fails where that fails. Any difference aborts.

namespace {

using namespace fastloader;
using testing::PlainJpeg;
using testing::Random;

// Small enough that a few hundred bytes of progressive scans cannot keep the machine busy.
constexpr uint64_t kPixelLimit = 1 << 16;
constexpr int kRegions = 3;

uint64_t hash_of(const uint8_t* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash;
}

void check(JpegDecoder& decoder, const uint8_t* data, size_t size, const JpegOptions& options,
           int denominator, Random& random) {
  const PlainJpeg plain(data, size, options.truncated == Truncated::kPad, options.pixel_limit,
                        denominator);
  for (int i = 0; i < kRegions; ++i) {
    JpegRegion region{0, 0, 1, 1};
    if (plain.height > 0) {
      region = i == 0 ? JpegRegion{0, 0, plain.width, plain.height}
                      : testing::random_region(random, plain.width, plain.height);
    }
    const testing::Compared compared =
        testing::compare_region(decoder, data, size, options, region, plain);
    if (compared.difference.empty()) continue;
    std::fprintf(stderr, "jpeg_fuzz: pad %d, check_below %d, 1/%d of the size: %s\n",
                 options.truncated == Truncated::kPad ? 1 : 0, options.check_below ? 1 : 0,
                 denominator, compared.difference.c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static JpegDecoder decoder;  // one for all inputs: nothing may pass from one to the next
  Random random(hash_of(data, size));
  JpegOptions options;
  options.pixel_limit = kPixelLimit;
  const int denominator = random.chance(80) ? 1 : 1 << random.between(1, 3);
  options.check_below = random.chance(20);
  check(decoder, data, size, options, denominator, random);
  options.truncated = Truncated::kPad;
  check(decoder, data, size, options, denominator, random);
  return 0;
}
