#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/jpeg/decoder.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"

// Pictures that are cut off, damaged, or none at all.

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

JpegOptions padding() {
  JpegOptions options;
  options.truncated = Truncated::kPad;
  return options;
}

JpegOptions checking_below() {
  JpegOptions options;
  options.check_below = true;
  return options;
}

/// A few small files of different make.
std::vector<Bytes> some_jpegs() {
  std::vector<Bytes> all;
  const auto add = [&](auto change) {
    JpegSpec spec;
    spec.width = 45;
    spec.height = 39;
    spec.sampling[0] = {2, 2};
    spec.seed = 5 + all.size();
    change(spec);
    all.push_back(make_jpeg(spec));
    EXPECT(!all.back().empty());
  };
  add([](JpegSpec&) {});
  add([](JpegSpec& spec) { spec.progressive = true; });
  add([](JpegSpec& spec) { spec.separate_scans = true; });
  add([](JpegSpec& spec) { spec.restart_blocks = 2; });
  add([](JpegSpec& spec) { spec.sampling[0] = {2, 1}; });
  add([](JpegSpec& spec) {
    spec.stored = JCS_GRAYSCALE;
    spec.sampling[0] = {1, 1};
  });
  add([](JpegSpec& spec) {
    spec.stored = JCS_YCCK;
    spec.sampling[3] = {2, 2};
  });
  add([](JpegSpec& spec) { spec.sampling[0] = {3, 1}; });
  return all;
}

/// Everything that can be asked of these bytes, against the oracle; twice the same, and nothing
/// left behind for the next picture. Returns how many decodes gave pixels.
int expect_consistent(JpegDecoder& decoder, const Bytes& bytes, Random& random) {
  int decoded = 0;
  for (const JpegOptions& options : {JpegOptions(), padding(), checking_below()}) {
    const PlainJpeg plain(bytes.data(), bytes.size(), options.truncated == Truncated::kPad,
                          options.pixel_limit);
    for (int i = 0; i < 3; ++i) {
      JpegRegion region{0, 0, 1, 1};
      if (plain.height > 0) {
        region = i == 0 ? JpegRegion{0, 0, plain.width, plain.height}
                        : random_region(random, plain.width, plain.height);
      }
      const Compared compared =
          compare_region(decoder, bytes.data(), bytes.size(), options, region, plain, true);
      EXPECT_EQ(compared.difference, "");
      decoded += compared.decoded ? 1 : 0;
    }
  }
  return decoded;
}

TEST(cut_off_anywhere) {
  JpegDecoder decoder;
  Random random(21);
  for (const Bytes& whole : some_jpegs()) {
    int decoded = 0;
    for (size_t size = 0; size < whole.size(); size += size + 40 < whole.size() ? 7u : 1u) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      decoded += expect_consistent(decoder, cut, random);
    }
    EXPECT(decoded > 10);
  }
}

TEST(cut_off_and_followed_by_something_else) {
  JpegDecoder decoder;
  Random random(22);
  for (const Bytes& whole : some_jpegs()) {
    for (int i = 0; i < 60; ++i) {
      Bytes bytes(whole.begin(), whole.begin() + random.below(static_cast<uint32_t>(whole.size())));
      for (uint32_t n = random.below(40); n > 0; --n) {
        bytes.push_back(static_cast<uint8_t>(random.next()));
      }
      if (random.chance(30)) bytes.insert(bytes.end(), {0xff, 0xd9});
      if (random.chance(20)) bytes.insert(bytes.end(), whole.begin(), whole.end());
      expect_consistent(decoder, bytes, random);
    }
  }
}

TEST(bits_flipped) {
  JpegDecoder decoder;
  Random random(23);
  for (const Bytes& whole : some_jpegs()) {
    int decoded = 0;
    for (int i = 0; i < 300; ++i) {
      Bytes bytes = whole;
      for (uint32_t n = random.between(1, 4); n > 0; --n) {
        bytes[random.below(static_cast<uint32_t>(bytes.size()))] ^=
            static_cast<uint8_t>(1u << random.below(8));
      }
      // A flipped size may stand for hundreds of megabytes of pixels.
      try {
        const JpegHeader& header = decoder.open(bytes.data(), bytes.size());
        if (header.width > 2000 || header.height > 2000) continue;
      } catch (const DecodeError&) {
      }
      decoded += expect_consistent(decoder, bytes, random);
    }
    EXPECT(decoded > 100);
  }
}

TEST(a_missing_end_marker_is_judged_whatever_the_region) {
  JpegDecoder decoder;
  for (const Bytes& whole : some_jpegs()) {
    const size_t size = whole.size() - 20;
    const PlainJpeg plain(whole.data(), size, false, kPillowPixelLimit);
    EXPECT(plain.end() == PlainJpeg::End::kTruncated);
    EXPECT(!decoder.open(whole.data(), size, padding()).has_end_marker);
    const auto read_corner = [&] {
      decoder.open(whole.data(), size);
      decoder.begin({0, 0, 2, 1});
      decoder.read_row();
    };
    EXPECT_THROW(read_corner(), DecodeError, "image file is truncated");
  }
}

TEST(padding_makes_grey_rows) {
  JpegSpec spec;
  spec.width = spec.height = 64;
  spec.stored = JCS_GRAYSCALE;
  const Bytes whole = make_jpeg(spec);
  JpegDecoder decoder;
  decoder.open(whole.data(), whole.size() / 2, padding());
  decoder.begin({0, 60, 64, 4});
  const uint8_t grey[3] = {128, 128, 128};
  for (int y = 0; y < 4; ++y) EXPECT(std::memcmp(decoder.read_row(), grey, 3) == 0);
  EXPECT(decoder.warnings() > 0);
  decoder.open(whole.data(), whole.size(), padding());
  EXPECT_EQ(decoder.warnings(), 0);
}

TEST(damage_below_the_region_is_looked_for_on_request) {
  JpegDecoder decoder;
  Bytes bytes = some_jpegs()[0];
  // A marker that may not stand there: an error to libjpeg as soon as it comes to it.
  bytes.resize(bytes.size() - 2);
  bytes.insert(bytes.end(), {0xff, 0x02, 0xff, 0xd9});
  const auto read = [&](const JpegOptions& options, const JpegRegion& region) {
    decoder.open(bytes.data(), bytes.size(), options);
    decoder.begin(region);
    while (decoder.rows_left() > 0) decoder.read_row();
  };
  read({}, {3, 3, 20, 10});
  EXPECT_THROW(read(checking_below(), {3, 3, 20, 10}), DecodeError, "Unsupported marker");
  EXPECT_THROW(read({}, {3, 3, 20, 36}), DecodeError, "Unsupported marker");
  read(padding(), {3, 3, 20, 36});
}

TEST(no_jpeg_at_all) {
  JpegDecoder decoder;
  EXPECT_THROW(decoder.open(nullptr, 0), DecodeError, "the file is empty");
  const Bytes png = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13};
  EXPECT_THROW(decoder.open(png.data(), png.size()), DecodeError, "Not a JPEG file");
  const Bytes start = {0xff, 0xd8};
  for (size_t size = 1; size <= 2; ++size) {
    EXPECT_THROW(decoder.open(start.data(), size), DecodeError, "truncated");
    EXPECT_THROW(decoder.open(start.data(), size, padding()), DecodeError, "truncated");
  }
  Random random(24);
  for (int i = 0; i < 2000; ++i) {
    Bytes noise(random.between(1, 200));
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random.next());
    if (random.chance(70))
      std::memcpy(noise.data(), "\xff\xd8\xff", std::min<size_t>(3, noise.size()));
    EXPECT_THROW(decoder.open(noise.data(), noise.size()), DecodeError, "");
  }
}

TEST(tables_do_not_outlive_their_picture) {
  JpegSpec spec;
  spec.tables = false;
  const Bytes without = make_jpeg(spec);
  EXPECT(!without.empty());
  const Bytes with = some_jpegs()[0];
  JpegDecoder decoder;
  for (int i = 0; i < 2; ++i) {
    const auto read = [&] {
      decoder.open(without.data(), without.size());
      decoder.begin({0, 0, 16, 16});
      decoder.read_row();
    };
    EXPECT_THROW(read(), DecodeError, "uantization table");
    decoder.open(with.data(), with.size());
    decoder.begin({0, 0, 1, 39});
    while (decoder.rows_left() > 0) decoder.read_row();
  }
}

TEST(usable_after_anything) {
  JpegDecoder decoder;
  Random random(25);
  const std::vector<Bytes> jpegs = some_jpegs();
  std::vector<Bytes> expected;
  for (const Bytes& jpeg : jpegs) {
    expected.push_back(PlainJpeg(jpeg.data(), jpeg.size(), false, kPillowPixelLimit).rgb);
  }
  for (int i = 0; i < 400; ++i) {
    Bytes bad = jpegs[random.below(static_cast<uint32_t>(jpegs.size()))];
    bad[random.below(static_cast<uint32_t>(bad.size()))] ^= 0x5a;
    bad.resize(random.below(static_cast<uint32_t>(bad.size())));
    try {
      decoder.open(bad.data(), bad.size(), padding());
      decoder.begin({0, 0, 1, 1});
      if (random.chance(50)) decoder.read_row();
    } catch (const Error&) {
    }
    const size_t k = random.below(static_cast<uint32_t>(jpegs.size()));
    decoder.open(jpegs[k].data(), jpegs[k].size());
    decoder.begin({0, 20, 45, 1});
    EXPECT(std::memcmp(decoder.read_row(), expected[k].data() + 20 * 45 * 3, 45 * 3) == 0);
  }
}

/// As Pillow: it reads on to the end marker, and takes no second frame header there, however short.
TEST(a_frame_header_in_the_place_of_the_end_is_an_error) {
  JpegDecoder decoder;
  JpegSpec spec;
  spec.width = 45;
  spec.height = 39;
  const Bytes good = make_jpeg(spec);
  const Bytes behind{0, 17, 8, 0, 39, 0, 45, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1};
  const auto decode_last_row = [&](const Bytes& file, const JpegOptions& options) {
    decoder.open(file.data(), file.size(), options);
    decoder.begin({0, spec.height - 1, spec.width, 1});
    decoder.read_row();
  };
  for (const uint8_t marker : {0xc0, 0xc1, 0xc2, 0xc9, 0xca}) {
    for (size_t size = 0; size <= behind.size(); ++size) {
      Bytes file = good;
      file.back() = marker;
      file.insert(file.end(), behind.begin(), behind.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_THROW(decode_last_row(file, {}), DecodeError, "");
      EXPECT_THROW(decode_last_row(file, checking_below()), DecodeError, "");
      decode_last_row(file, padding());
    }
  }
  for (const uint8_t marker : {0xc4, 0xdb, 0xe0, 0xfe}) {  // the end of the bytes is no error there
    Bytes file = good;
    file.back() = marker;
    decode_last_row(file, checking_below());
  }
  decode_last_row(good, checking_below());
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
