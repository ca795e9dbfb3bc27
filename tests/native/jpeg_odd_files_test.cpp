#include "jpeg_odd_files.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/decoder.h"
#include "jpeg_compare.h"

// JPEGs that are clean and odd: libjpeg finds in them what was put there, and the decoder makes the
// pixels of libjpeg's whole decode of each.

namespace fastloader {
namespace {

using namespace testing;

constexpr uint64_t kFiles = 1500;

/// Calls `body` with that many files, and others when the tests are run again (argv[2]).
template <class Body>
void for_each_odd_jpeg(Body body) {
  static uint64_t next = 0;
  const uint64_t end = next + kFiles;
  for (; next < end; ++next) {
    const OddJpeg odd = make_odd_jpeg(next);
    try {
      body(odd);
    } catch (const Failure& failure) {
      throw Failure{odd.name() + ": " + failure.what};
    }
  }
}

TEST(libjpeg_reads_what_went_in) {
  for_each_odd_jpeg([](const OddJpeg& odd) {
    const JpegCoefficients found = read_coefficients(odd.bytes);
    EXPECT_EQ(found.difference(odd.coefficients), "");
    EXPECT_EQ(found.warnings, 0);
    const PlainJpeg plain(odd.bytes.data(), odd.bytes.size(), false, kPillowPixelLimit);
    EXPECT(plain.end() == PlainJpeg::End::kFine);
    EXPECT(plain.finished);
    EXPECT_EQ(plain.warnings(), 0);
    EXPECT_EQ(plain.rows, odd.coefficients.height);
  });
}

TEST(every_trait_is_there) {
  uint64_t counts[kOddTraits] = {};
  for_each_odd_jpeg([&](const OddJpeg& odd) {
    for (size_t i = 0; i < kOddTraits; ++i) {
      if (odd.traits.has(static_cast<OddTrait>(i))) ++counts[i];
    }
  });
  for (size_t i = 0; i < kOddTraits; ++i) {
    std::printf("%6llu  %s\n", static_cast<unsigned long long>(counts[i]), kOddTraitNames[i]);
  }
  for (size_t i = 0; i < kOddTraits; ++i) {
    if (counts[i] < kFiles / 100) throw Failure{std::string("too few: ") + kOddTraitNames[i]};
  }
}

void expect_region(JpegDecoder& decoder, const OddJpeg& odd, const PlainJpeg& plain,
                   const JpegRegion& region) {
  const Compared compared =
      compare_region(decoder, odd.bytes.data(), odd.bytes.size(), {}, region, plain);
  EXPECT_EQ(compared.difference, "");
  EXPECT(compared.decoded);
  // Our own decoder takes all of these, but for several sequential scans.
  const bool several = odd.traits.has(OddTrait::kSeveralScans);
  EXPECT_EQ(std::string(name_of(decoder.refusal())), several ? "scans" : "none");
  EXPECT(decoder.skips_outside());
  EXPECT_EQ(decoder.warnings(), 0);
}

TEST(regions_equal_the_whole_decode) {
  std::vector<std::unique_ptr<JpegDecoder>> decoders;
  for (const std::string& name : available_isa_names()) {
    decoders.push_back(std::make_unique<JpegDecoder>(isa_by_name(name)));
  }
  for_each_odd_jpeg([&](const OddJpeg& odd) {
    // Every instruction set gets its share of the files.
    JpegDecoder& decoder = *decoders[odd.number % decoders.size()];
    Random random(odd.number);
    const PlainJpeg plain(odd.bytes.data(), odd.bytes.size(), false, kPillowPixelLimit);
    const uint32_t width = plain.width;
    const uint32_t height = plain.height;
    const uint32_t part = random.between(1, width);
    const uint32_t rows = random.between(1, height);
    const JpegRegion regions[] = {
        {0, 0, width, height},
        {random.below(width), random.below(height), 1, 1},
        {width - 1, height - 1, 1, 1},
        {0, random.below(height - rows + 1), part, rows},
        {width - part, random.below(height - rows + 1), part, rows},
        {random.below(width - part + 1), 0, part, rows},
        {random.below(width - part + 1), height - rows, part, rows},
    };
    for (const JpegRegion& region : regions) expect_region(decoder, odd, plain, region);
    for (int i = 0; i < 6; ++i) {
      expect_region(decoder, odd, plain, random_region(random, width, height));
    }
  });
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
