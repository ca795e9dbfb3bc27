#include "base/error.h"
#include "fuzz_loop.h"
#include "image/orientation.h"
#include "image/png/decoder.h"
#include "png_samples.h"
#include "rgb_regions.h"

// Any bytes, any region, any options. What decodes whole has the pixels that a plain reading of the
// standard gives, if the damage was in the rows; a region has those of the whole; and where the
// whole fails, so does a region with check_below.

namespace {

using namespace fastloader;
using testing::Bytes;
using testing::Random;

constexpr uint64_t kPixelLimit = 1 << 22;

/// What the last input is known to decode to; empty: that is not known.
Bytes expected;

Bytes make(Random& random) {
  testing::PngSpec spec = testing::random_png(random);
  expected = testing::plain_pixels(spec);
  if (random.chance(20)) return testing::png_file(spec, random.between(1, 3000));
  expected.clear();
  // Damage behind the checksums is the only one that gets far.
  const uint32_t where = random.below(4);
  if (where == 0) fuzz::damage(spec.filtered, random);
  if (where == 1 && spec.color == 3) fuzz::damage(spec.palette, random);
  if (where == 2) spec.width += random.below(3);
  if (where == 2) spec.interlaced = random.chance(50);
  Bytes file = testing::png_file(spec, random.between(1, 3000));
  if (where == 3) fuzz::damage(file, random);
  if (where == 2 && random.chance(50)) {
    Bytes text(random.below(60));
    for (uint8_t& byte : text) byte = static_cast<uint8_t>(random.below(256));
    const char* const names[] = {"tEXt", "zTXt", "iTXt", "iCCP", "acTL", "fcTL", "tRNS", "eXIf"};
    Bytes with(file.begin(), file.begin() + 33);  // signature and header
    testing::put_chunk(with, names[random.below(8)], text);
    with.insert(with.end(), file.begin() + 33, file.end());
    return with;
  }
  return file;
}

bool check(const Bytes& bytes, Random& random) {
  static PngDecoder decoder;  // one for all inputs: nothing may pass from one to the next
  const Bytes file(bytes);    // of exactly that size, so that a step beyond it is seen
  read_orientation(file.data(), file.size());
  PictureOptions options;
  options.pixel_limit = kPixelLimit;
  PictureSize size;
  try {
    size = decoder.open(file.data(), file.size(), options);
  } catch (const DecodeError&) {
    if (!expected.empty()) fuzz::give_up("png_fuzz: it does not open");
    return false;
  }
  Bytes whole;
  try {
    whole = testing::decode(decoder, file, {0, 0, size.width, size.height}, options);
  } catch (const DecodeError&) {
    if (!expected.empty()) fuzz::give_up("png_fuzz: it does not decode");
  }
  if (!expected.empty() && whole != expected) fuzz::give_up("png_fuzz: other pixels");
  for (int round = 0; round < 2; ++round) {
    options.check_below = round == 0;
    const PictureRegion region = testing::region_within(random, size.width, size.height);
    try {
      const Bytes part = testing::decode(decoder, file, region, options);
      if (whole.empty() && options.check_below) fuzz::give_up("png_fuzz: the whole fails");
      if (!whole.empty() && part != testing::cropped(whole, size.width, region)) {
        fuzz::give_up("png_fuzz: the region has other pixels");
      }
    } catch (const DecodeError&) {
      // A checksum that is wrong matters only where it is looked at.
      if (!whole.empty() && (options.check_below || !expected.empty())) {
        fuzz::give_up("png_fuzz: the region fails");
      }
    }
  }
  return !whole.empty();
}

}  // namespace

int main(int argc, char** argv) { return fastloader::fuzz::run(argc, argv, make, check); }
