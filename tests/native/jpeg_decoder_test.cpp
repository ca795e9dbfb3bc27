#include "image/jpeg/decoder.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/jpeg/libjpeg/probe.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"

// Everything about pictures that are what they say; damaged ones are in
// jpeg_decoder_damage_test.cpp.

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

Bytes must_make(const JpegSpec& spec) {
  Bytes jpeg = make_jpeg(spec);
  EXPECT(!jpeg.empty());
  return jpeg;
}

JpegSpec layout_spec(const JpegLayout& layout, uint32_t width, uint32_t height) {
  Random random(width * 1000 + height);
  JpegSpec spec;
  spec.width = width;
  spec.height = height;
  set_layout(spec, layout, random);
  return spec;
}

const JpegLayout kYcc420 = {"4:2:0", 3, {{2, 2}, {1, 1}, {1, 1}}};
const JpegLayout kGrey = {"grey", 1, {{1, 1}}};

/// The whole picture and `regions` random parts of it, by both decoders. `skipping`: of libjpeg.
void expect_exact(JpegDecoder& decoder, const Bytes& jpeg, Random& random, int regions,
                  bool skipping, int denominator = 1) {
  const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit, denominator);
  EXPECT(plain.end() == PlainJpeg::End::kFine);
  for (int i = 0; i <= regions; ++i) {
    const JpegRegion region = i == 0 ? JpegRegion{0, 0, plain.width, plain.height}
                                     : random_region(random, plain.width, plain.height);
    for (const bool own : {true, false}) {
      JpegOptions options;
      options.own = own;
      const Compared compared =
          compare_region(decoder, jpeg.data(), jpeg.size(), options, region, plain);
      EXPECT_EQ(compared.difference, "");
      EXPECT(compared.decoded);
      EXPECT(own || !compared.own);
      EXPECT_EQ(decoder.skips_outside(), compared.own || skipping);
      EXPECT_EQ(decoder.rows_left(), 0u);
    }
  }
}

template <class Body>
void for_each_proven_layout(Body body) {
  for (size_t i = 0; i < kJpegLayouts; ++i) {
    const JpegLayout& layout = jpeg_layouts()[i];
    try {
      EXPECT(jpeg_skips_exactly(layout));
      body(layout);
    } catch (const Failure& failure) {
      throw Failure{std::string(layout.name) + ": " + failure.what};
    }
  }
}

TEST(regions_of_proven_layouts_equal_the_whole_decode) {
  JpegDecoder decoder;
  Random random(11);
  for_each_proven_layout([&](const JpegLayout& layout) {
    for (int i = 0; i < 100; ++i) {
      JpegSpec spec = random_spec(random, i % 10 == 0 ? 300 : 70);
      set_layout(spec, layout, random);
      expect_exact(decoder, must_make(spec), random, 12, true);
    }
  });
}

TEST(one_pixel_regions_everywhere) {
  JpegDecoder decoder;
  for_each_proven_layout([&](const JpegLayout& layout) {
    // 33 and 34: the last blocks hold one sample of colour.
    for (uint32_t width = 33; width <= 37; ++width) {
      const uint32_t height = width - 14;
      const Bytes jpeg = must_make(layout_spec(layout, width, height));
      const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
      for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t x = 0; x < width; ++x) {
          const Compared compared =
              compare_region(decoder, jpeg.data(), jpeg.size(), {}, {x, y, 1, 1}, plain);
          EXPECT_EQ(compared.difference, "");
        }
      }
    }
  });
}

TEST(every_small_size) {
  JpegDecoder decoder;
  Random random(12);
  for_each_proven_layout([&](const JpegLayout& layout) {
    for (uint32_t width = 1; width <= 34; width += 1 + width / 9) {
      for (uint32_t height = 1; height <= 34; height += 1 + height / 9) {
        expect_exact(decoder, must_make(layout_spec(layout, width, height)), random, 3, true);
      }
    }
  });
}

TEST(other_samplings_are_decoded_whole) {
  JpegDecoder decoder;
  Random random(13);
  int made = 0;
  for (int i = 0; i < 600 && made < 150; ++i) {
    JpegSpec spec = random_spec(random, 60);
    spec.stored = random.chance(25) ? JCS_GRAYSCALE : random.chance(25) ? JCS_YCCK : JCS_YCbCr;
    for (JpegSampling& sampling : spec.sampling) {
      sampling = {static_cast<uint8_t>(random.between(1, 4)),
                  static_cast<uint8_t>(random.between(1, 4))};
    }
    const Bytes jpeg = make_jpeg(spec);
    if (jpeg.empty() || jpeg_layout_is_proven(spec.components(), spec.sampling)) continue;
    if (PlainJpeg(jpeg.data(), jpeg.size(), false, kPillowPixelLimit).end() !=
        PlainJpeg::End::kFine) {
      EXPECT_THROW(
          (decoder.open(jpeg.data(), jpeg.size()), decoder.begin({0, 0, spec.width, spec.height})),
          UnsupportedImage, "");
      continue;
    }
    ++made;
    expect_exact(decoder, jpeg, random, 4, false);
  }
  EXPECT(made >= 100);
}

TEST(reduced_regions_equal_the_reduced_whole) {
  JpegDecoder decoder;
  Random random(14);
  for_each_proven_layout([&](const JpegLayout& layout) {
    for (int i = 0; i < 15; ++i) {
      JpegSpec spec = random_spec(random, 150);
      set_layout(spec, layout, random);
      const Bytes jpeg = must_make(spec);
      for (int by : {2, 4, 8}) expect_exact(decoder, jpeg, random, 4, true, by);
    }
  });
  const Bytes jpeg = must_make(layout_spec(kYcc420, 41, 17));
  EXPECT_THROW(decoder.reduce(4), InvalidArgument, "without open()");
  EXPECT_EQ(decoder.open(jpeg.data(), jpeg.size()).scaled_width, 41u);
  EXPECT_THROW(decoder.reduce(3), InvalidArgument, "1, 2, 4 or 8");
  const JpegHeader& header = decoder.reduce(4);
  EXPECT_EQ(header.width, 41u);
  EXPECT_EQ(header.scaled_width, 11u);
  EXPECT_EQ(header.scaled_height, 5u);
}

TEST(incomplete_progressive_files_are_not_decoded_in_parts) {
  JpegDecoder decoder;
  Random random(15);
  for (int i = 0; i < 20; ++i) {
    JpegSpec spec = layout_spec(kYcc420, random.between(9, 90), random.between(9, 90));
    spec.stored = JCS_YCbCr;
    spec.incomplete = true;
    spec.seed = random.next();
    const Bytes jpeg = must_make(spec);
    if (jpeg_smooths_as_pillow()) {
      expect_exact(decoder, jpeg, random, 4, false);
    } else {
      decoder.open(jpeg.data(), jpeg.size());
      EXPECT_THROW(decoder.begin({0, 0, 5, 5}), UnsupportedImage, "smooth");
    }
  }
}

TEST(header_says_what_the_file_is) {
  JpegDecoder decoder;
  struct Case {
    J_COLOR_SPACE stored;
    JpegColor color;
    int components;
    int adobe;
  };
  for (const Case& one :
       {Case{JCS_GRAYSCALE, JpegColor::kGrey, 1, -1}, Case{JCS_YCbCr, JpegColor::kYcc, 3, -1},
        Case{JCS_RGB, JpegColor::kRgb, 3, 0}, Case{JCS_CMYK, JpegColor::kCmyk, 4, 0},
        Case{JCS_YCCK, JpegColor::kYcck, 4, 2}}) {
    JpegSpec spec;
    spec.width = 21;
    spec.height = 13;
    spec.stored = one.stored;
    spec.progressive = one.components == 3;
    const Bytes jpeg = must_make(spec);
    const JpegHeader& header = decoder.open(jpeg.data(), jpeg.size());
    EXPECT_EQ(header.width, 21u);
    EXPECT_EQ(header.height, 13u);
    EXPECT_EQ(header.scaled_width, 21u);
    EXPECT(header.color == one.color);
    EXPECT_EQ(header.components, one.components);
    EXPECT_EQ(header.adobe_transform, one.adobe);
    EXPECT_EQ(header.precision, 8);
    EXPECT_EQ(header.progressive, spec.progressive);
    EXPECT(header.has_end_marker);
    EXPECT_EQ(int{header.sampling[0].horizontal}, 1);
  }
  const Bytes jpeg = must_make(layout_spec(kYcc420, 21, 13));
  EXPECT_EQ(int{decoder.open(jpeg.data(), jpeg.size()).sampling[0].vertical}, 2);
}

TEST(kinds_it_does_not_know_are_told_apart_from_damage) {
  JpegDecoder decoder;
  JpegSpec spec;
  spec.stored = JCS_UNKNOWN;
  const Bytes two = must_make(spec);
  EXPECT_THROW(decoder.open(two.data(), two.size()), UnsupportedImage, "2 components");

  spec.stored = JCS_YCbCr;
  spec.arithmetic = true;
  const Bytes arithmetic = make_jpeg(spec);  // empty where libjpeg-turbo was built without
  if (!arithmetic.empty()) {
    EXPECT_THROW(decoder.open(arithmetic.data(), arithmetic.size()), UnsupportedImage,
                 "arithmetic");
  }

  const Bytes good = must_make(layout_spec(kGrey, 16, 16));
  const auto with_frame_byte = [&](size_t offset, uint8_t value) {
    Bytes jpeg = good;
    for (size_t i = 0; i + 1 < jpeg.size(); ++i) {
      if (jpeg[i] != 0xff || jpeg[i + 1] != 0xc0) continue;
      jpeg[i + offset] = value;
      return jpeg;
    }
    throw Failure{"no frame header"};
  };
  const Bytes deep = with_frame_byte(4, 12);
  EXPECT_THROW(decoder.open(deep.data(), deep.size()), UnsupportedImage, "");
  const Bytes hierarchical = with_frame_byte(1, 0xc5);
  EXPECT_THROW(decoder.open(hierarchical.data(), hierarchical.size()), UnsupportedImage, "");
}

TEST(pixel_limit_is_checked_before_decoding) {
  JpegDecoder decoder;
  const Bytes jpeg = must_make(layout_spec(kYcc420, 40, 25));
  JpegOptions options;
  options.pixel_limit = 999;
  EXPECT_THROW(decoder.open(jpeg.data(), jpeg.size(), options), DecodeError, "999");
  options.pixel_limit = 1000;
  EXPECT_EQ(decoder.open(jpeg.data(), jpeg.size(), options).width, 40u);

  // 65500 x 65500 pixels in a few hundred bytes.
  Bytes bomb = jpeg;
  for (size_t i = 0; i + 8 < bomb.size(); ++i) {
    if (bomb[i] != 0xff || bomb[i + 1] != 0xc0) continue;
    bomb[i + 5] = bomb[i + 7] = 0xff;
    bomb[i + 6] = bomb[i + 8] = 0xdc;
    break;
  }
  EXPECT_THROW(decoder.open(bomb.data(), bomb.size()), DecodeError, "decompression bomb");
}

TEST(callers_mistakes) {
  JpegDecoder decoder;
  EXPECT_THROW(decoder.begin({0, 0, 1, 1}), InvalidArgument, "without open()");
  EXPECT_THROW(decoder.read_row(), InvalidArgument, "without a row");
  const Bytes jpeg = must_make(layout_spec(kYcc420, 20, 10));
  for (const JpegRegion& region :
       {JpegRegion{0, 0, 0, 1}, JpegRegion{0, 0, 1, 0}, JpegRegion{0, 0, 21, 1},
        JpegRegion{0, 0, 1, 11}, JpegRegion{20, 0, 1, 1}, JpegRegion{0, 10, 1, 1},
        JpegRegion{1, 0, 0xffffffffu, 1}, JpegRegion{0, 1, 1, 0xffffffffu}}) {
    decoder.open(jpeg.data(), jpeg.size());
    EXPECT_THROW(decoder.begin(region), InvalidArgument, "not inside the picture");
    decoder.begin({19, 9, 1, 1});  // and nothing is lost by it
    decoder.read_row();
    EXPECT_THROW(decoder.read_row(), InvalidArgument, "without a row");
    EXPECT_THROW(decoder.begin({0, 0, 1, 1}), InvalidArgument, "without open()");
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
