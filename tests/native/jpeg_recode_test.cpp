#include "image/jpeg/libjpeg/recode.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "check.h"
#include "image/jpeg/file.h"
#include "image/jpeg/pillow_header.h"
#include "jpeg_compare.h"
#include "jpeg_odd_files.h"

// A recoded file is a sequential one with the coefficients of the progressive one.

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

JpegFile file_of(const Bytes& jpeg) {
  JpegFile file;
  EXPECT(read_jpeg_file(jpeg.data(), jpeg.size(), file) == JpegRefusal::kNone);
  return file;
}

TEST(recoded_files_have_the_same_coefficients) {
  int recoded = 0;
  int restarting = 0;
  for (uint64_t number = 0; number < 1500; ++number) {
    const OddJpeg odd = make_odd_jpeg(number);
    const std::optional<Bytes> sequential =
        recode_as_sequential(odd.bytes.data(), odd.bytes.size());
    const bool expected = odd.traits.has(OddTrait::kProgressive) &&
                          !odd.traits.has(OddTrait::kTrailing) &&
                          stumbling_block_of_pillow(odd.bytes.data(), odd.bytes.size()) == nullptr;
    EXPECT_EQ(sequential.has_value(), expected);
    if (!sequential) continue;
    ++recoded;
    const JpegFile after = file_of(*sequential);
    EXPECT(!after.progressive);
    const ProgressiveScan first = file_of(odd.bytes).scans.front();
    restarting += after.restart_interval > 0 ? 1 : 0;
    if (first.components == after.components) {
      // An interval that the scan does not exceed is none.
      const uint64_t mcus = uint64_t{after.mcus_across} * after.mcus_down;
      const uint32_t interval = first.restart_interval < mcus ? first.restart_interval : 0;
      EXPECT_EQ(after.restart_interval, interval);
    }
    const JpegCoefficients found = read_coefficients(*sequential);
    EXPECT_EQ(found.warnings, 0);
    EXPECT_EQ(found.difference(read_coefficients(odd.bytes)), "");
  }
  EXPECT(recoded > 300 && restarting > 50);
}

TEST(damaged_files_keep_their_pixels_or_are_left) {
  Random random(4712);
  JpegDecoder decoder;
  int recoded = 0;
  int left = 0;
  for (int i = 0; i < 1500; ++i) {
    JpegSpec spec;
    spec.width = random.between(8, 60);
    spec.height = random.between(8, 60);
    spec.progressive = true;
    spec.seed = random.next();
    Bytes jpeg = make_jpeg(spec);
    for (uint32_t n = random.between(1, 3); n > 0; --n) {
      jpeg[random.below(static_cast<uint32_t>(jpeg.size()))] ^=
          static_cast<uint8_t>(1u << random.below(8));
    }
    if (random.chance(20)) jpeg.resize(random.between(1, static_cast<uint32_t>(jpeg.size())));
    const std::optional<Bytes> sequential = recode_as_sequential(jpeg.data(), jpeg.size());
    ++(sequential ? recoded : left);
    if (!sequential) continue;
    EXPECT_EQ(read_coefficients(jpeg).warnings, 0);
    const PlainJpeg before(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
    const JpegRegion whole{0, 0, before.width, before.height};
    const Compared compared =
        compare_region(decoder, sequential->data(), sequential->size(), {}, whole, before);
    EXPECT_EQ(compared.difference, "");
    EXPECT(compared.decoded);
  }
  EXPECT(recoded > 50 && left > 500);
}

TEST(incomplete_files_are_left) {
  JpegSpec spec;
  spec.width = 40;
  spec.height = 30;
  spec.progressive = true;
  EXPECT(recode_as_sequential(make_jpeg(spec).data(), make_jpeg(spec).size()).has_value());
  spec.incomplete = true;
  const Bytes jpeg = make_jpeg(spec);
  EXPECT(!recode_as_sequential(jpeg.data(), jpeg.size()).has_value());
  EXPECT(!recode_as_sequential(nullptr, 0).has_value());
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
