#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/decoder.h"
#include "image/jpeg/kernels/progressive.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"
#include "jpeg_scans.h"

// The decoder of our own for progressive files: that it makes every clean file's pixels itself, on
// each instruction set, and what it leaves to libjpeg-turbo.

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;
using Script = std::vector<JpegScan>;

const JpegLayout kOwnLayouts[] = {
    {"grey", 1, {{1, 1}}},
    {"4:4:4", 3, {{1, 1}, {1, 1}, {1, 1}}},
    {"4:2:2", 3, {{2, 1}, {1, 1}, {1, 1}}},
    {"4:2:0", 3, {{2, 2}, {1, 1}, {1, 1}}},
    {"4:4:0", 3, {{1, 2}, {1, 1}, {1, 1}}},
    {"4:2:1", 3, {{2, 2}, {1, 2}, {2, 1}}},
};

/// A decoder on each implementation that this machine can run.
class Decoders {
 public:
  Decoders() {
    for (const std::string& name : available_isa_names()) isas_.push_back(isa_by_name(name));
#if defined(__x86_64__)
    // Which one of the two a CPU has does not depend on what it can.
    if (isas_.front().jpeg_progressive == &kJpegProgressiveBmi2) {
      isas_.push_back(isas_.front());
      isas_.back().jpeg_progressive = &kJpegProgressiveAvx2;
    }
#endif
    for (const Isa& isa : isas_) decoders_.push_back(std::make_unique<JpegDecoder>(isa));
  }

  template <class Body>
  void for_each(Body body) {
    for (size_t i = 0; i < isas_.size(); ++i) {
      try {
        body(*decoders_[i]);
      } catch (const Failure& failure) {
        throw Failure{std::string(isas_[i].name) + ", decoder " + std::to_string(i) + ": " +
                      failure.what};
      }
    }
  }

 private:
  std::vector<Isa> isas_;
  std::vector<std::unique_ptr<JpegDecoder>> decoders_;
};

std::vector<jpeg_scan_info> as_libjpeg_says(const Script& script) {
  std::vector<jpeg_scan_info> scans;
  for (const JpegScan& scan : script) {
    jpeg_scan_info info{
        static_cast<int>(scan.planes.size()), {}, scan.first, scan.last, scan.high, scan.low};
    for (size_t i = 0; i < scan.planes.size(); ++i) {
      info.component_index[i] = static_cast<int>(scan.planes[i]);
    }
    scans.push_back(info);
  }
  return scans;
}

JpegSpec random_progressive(Random& random) {
  JpegSpec spec = random_spec(random, 70);
  spec.progressive = true;
  spec.separate_scans = false;
  spec.quality = static_cast<int>(random.between(1, 100));
  set_layout(spec, kOwnLayouts[random.below(6)], random);
  if (spec.stored == JCS_RGB) spec.stored = JCS_YCbCr;
  if (random.chance(80)) {
    spec.scans =
        as_libjpeg_says(RandomScript(static_cast<size_t>(spec.components()), random).make());
  }
  return spec;
}

Bytes must_make(const JpegSpec& spec) {
  Bytes jpeg = make_jpeg(spec);
  EXPECT(!jpeg.empty());
  return jpeg;
}

TEST(every_clean_file_is_ours_and_equals_the_whole_decode) {
  Decoders decoders;
  Random random(61);
  for (int i = 0; i < 600; ++i) {
    const Bytes jpeg = must_make(random_progressive(random));
    const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
    EXPECT(plain.end() == PlainJpeg::End::kFine);
    for (int part = 0; part < 4; ++part) {
      const JpegRegion region = part == 0 ? JpegRegion{0, 0, plain.width, plain.height}
                                          : random_region(random, plain.width, plain.height);
      JpegOptions options;
      options.check_below = part == 1;
      decoders.for_each([&](JpegDecoder& decoder) {
        const Compared compared =
            compare_region(decoder, jpeg.data(), jpeg.size(), options, region, plain);
        EXPECT_EQ(compared.difference, "");
        EXPECT(compared.decoded);
        EXPECT_EQ(name_of(decoder.refusal()), name_of(JpegRefusal::kNone));
      });
    }
  }
}

TEST(larger_files_with_long_runs_and_restarts) {
  Decoders decoders;
  Random random(62);
  for (int i = 0; i < 30; ++i) {
    JpegSpec spec = random_progressive(random);
    spec.width = random.between(300, 900);
    spec.height = random.between(200, 700);
    // Of flat pictures a run may go on over many rows.
    if (i % 2 == 0) spec.quality = static_cast<int>(random.between(1, 10));
    spec.restart_blocks = i % 3 == 0 ? random.between(1, 3000) : 0;
    spec.restart_rows = i % 3 == 1 ? static_cast<int>(random.between(1, 4)) : 0;
    const Bytes jpeg = must_make(spec);
    const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
    for (int part = 0; part < 4; ++part) {
      const JpegRegion region = random_region(random, plain.width, plain.height);
      decoders.for_each([&](JpegDecoder& decoder) {
        const Compared compared =
            compare_region(decoder, jpeg.data(), jpeg.size(), {}, region, plain);
        EXPECT_EQ(compared.difference, "");
        EXPECT(decoder.made_by() == JpegMaker::kOwn);
      });
    }
  }
}

/// Where the segments of a kind begin, with their markers.
std::vector<size_t> segments_of(const Bytes& jpeg, uint8_t marker) {
  std::vector<size_t> found;
  for (size_t i = 0; i + 1 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xff && jpeg[i + 1] == marker) found.push_back(i);
  }
  return found;
}

/// Changes a few bytes behind the first scan's header.
Bytes damaged(Bytes jpeg, Random& random) {
  const size_t begin = segments_of(jpeg, 0xda).front() + 2;
  const auto somewhere = [&] {
    return begin + random.below(static_cast<uint32_t>(jpeg.size() - begin));
  };
  for (uint32_t times = random.between(1, 3); times > 0; --times) {
    const size_t at = somewhere();
    const auto from = jpeg.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(5)) {
      case 0:
        jpeg[at] = static_cast<uint8_t>(random.next());
        break;
      case 1:
        jpeg[at] = static_cast<uint8_t>(jpeg[at] ^ 1u << random.below(8));
        break;
      case 2:
        jpeg.erase(from, from + std::min<std::ptrdiff_t>(jpeg.end() - from, random.between(1, 9)));
        break;
      case 3:
        jpeg.insert(from, random.between(1, 3), static_cast<uint8_t>(random.next()));
        break;
      default:
        if (random.chance(20)) jpeg.resize(at);
        break;
    }
    if (jpeg.size() <= begin) break;
  }
  return jpeg;
}

TEST(damaged_files_are_worth_what_libjpeg_says) {
  Decoders decoders;
  Random random(63);
  int ours = 0;
  int half_ours = 0;
  for (int i = 0; i < 2500; ++i) {
    const Bytes jpeg = damaged(must_make(random_progressive(random)), random);
    const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
    const JpegRegion region = plain.height == 0 ? JpegRegion{0, 0, 1, 1}
                              : i % 3 == 0      ? JpegRegion{0, 0, plain.width, plain.height}
                                                : random_region(random, plain.width, plain.height);
    const JpegRefusal unknown = JpegRefusal::kNotAsked;
    JpegRefusal refusal = unknown;
    decoders.for_each([&](JpegDecoder& decoder) {
      JpegOptions options;
      options.check_below = i % 4 == 0;
      const Compared compared =
          compare_region(decoder, jpeg.data(), jpeg.size(), options, region, plain, true);
      EXPECT_EQ(compared.difference, "");
      // All implementations find the same fault.
      if (refusal == unknown) refusal = decoder.refusal();
      EXPECT_EQ(name_of(decoder.refusal()), name_of(refusal));
    });
    if (refusal == JpegRefusal::kNone) ++ours;
    if (refusal == JpegRefusal::kDamage && plain.end() == PlainJpeg::End::kFine) ++half_ours;
  }
  EXPECT(ours > 100);
  EXPECT(half_ours > 300);
}

TEST(rows_above_damage_are_ours) {
  JpegSpec spec;
  spec.width = 160;
  spec.height = 160;
  spec.progressive = true;
  spec.sampling[0] = {2, 2};
  Bytes jpeg = must_make(spec);
  // The last scan holds the last bits of all blocks: its last bytes are of the lowest ones.
  std::fill(jpeg.end() - 40, jpeg.end() - 2, uint8_t{0x55});
  const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
  EXPECT(plain.end() == PlainJpeg::End::kFine);
  JpegDecoder decoder;
  decoder.open(jpeg.data(), jpeg.size());
  decoder.begin({0, 0, 160, 160});
  uint32_t own_rows = 0;
  for (uint32_t y = 0; y < 160; ++y) {
    const uint8_t* row = decoder.read_row();
    EXPECT(std::equal(row, row + 3 * 160, plain.pixel(0, y)));
    if (decoder.made_by() == JpegMaker::kOwn) ++own_rows;
  }
  EXPECT(own_rows >= 64);
  EXPECT_EQ(name_of(decoder.refusal()), std::string("damage"));
}

JpegRefusal refusal_of(JpegDecoder& decoder, const Bytes& jpeg) {
  try {
    decoder.open(jpeg.data(), jpeg.size());
  } catch (const DecodeError&) {  // libjpeg does not take it either
  }
  return decoder.refusal();
}

/// The file without its n-th scan, or with this scan behind the next one.
Bytes without_scan(const Bytes& jpeg, size_t n, bool behind_next) {
  const std::vector<size_t> headers = segments_of(jpeg, 0xda);
  const std::vector<size_t> tables = segments_of(jpeg, 0xc4);
  // A scan begins with its tables.
  std::vector<size_t> begins = headers;
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t before = i == 0 ? 0 : headers[i - 1];
    for (const size_t table : tables) {
      if (table > before && table < begins[i]) {
        begins[i] = table;
        break;
      }
    }
  }
  begins.push_back(jpeg.size() - 2);
  const auto at = [&](size_t i) { return jpeg.begin() + static_cast<std::ptrdiff_t>(begins[i]); };
  Bytes changed(jpeg.begin(), at(n));
  if (behind_next) {
    changed.insert(changed.end(), at(n + 1), at(n + 2));
    changed.insert(changed.end(), at(n), at(n + 1));
    changed.insert(changed.end(), at(n + 2), jpeg.end());
  } else {
    changed.insert(changed.end(), at(n + 1), jpeg.end());
  }
  return changed;
}

TEST(scripts_that_are_incomplete_or_out_of_order_are_left_to_libjpeg) {
  JpegDecoder decoder;
  Random random(64);
  for (int i = 0; i < 60; ++i) {
    JpegSpec spec = random_progressive(random);
    spec.restart_blocks = 0;
    spec.restart_rows = 0;
    const Bytes jpeg = must_make(spec);
    EXPECT_EQ(name_of(refusal_of(decoder, jpeg)), std::string("none"));
    const size_t scans = segments_of(jpeg, 0xda).size();
    for (size_t n = 0; n < scans && scans > 1; ++n) {
      const Bytes less = without_scan(jpeg, n, false);
      EXPECT_EQ(name_of(refusal_of(decoder, less)), std::string("scans"));
    }
  }
  // The bits of a coefficient in the wrong order; the usual script's last two scans of Y.
  JpegSpec spec;
  spec.progressive = true;
  spec.stored = JCS_GRAYSCALE;
  const Bytes jpeg = must_make(spec);
  EXPECT_EQ(segments_of(jpeg, 0xda).size(), 6u);
  EXPECT_EQ(name_of(refusal_of(decoder, without_scan(jpeg, 0, true))), std::string("scans"));
  EXPECT_EQ(name_of(refusal_of(decoder, without_scan(jpeg, 2, true))), std::string("scans"));
  // The first bits and a further bit of what comes in between have nothing to do with each other.
  EXPECT_EQ(name_of(refusal_of(decoder, without_scan(jpeg, 3, true))), std::string("none"));
}

/// A script of that many scans.
Script long_script(int scans) {
  Script script{progressive_scan({0}, 0, 0, 0, 0)};
  for (int k = 1; k < 64; ++k) {
    const bool last = static_cast<int>(script.size()) + 1 == scans;
    script.push_back(progressive_scan({0}, k, last ? 63 : k, 0, 0));
    if (last) break;
  }
  if (scans <= 64) return script;
  script.back().low = 1;
  script.push_back(progressive_scan({0}, 63, 63, 1, 0));
  return script;
}

TEST(many_scans) {
  JpegDecoder decoder;
  JpegSpec spec;
  spec.width = 40;
  spec.height = 30;
  spec.progressive = true;
  spec.stored = JCS_GRAYSCALE;
  for (const int scans : {2, 33, 64, 65}) {
    spec.scans = as_libjpeg_says(long_script(scans));
    EXPECT_EQ(spec.scans.size(), static_cast<size_t>(scans));
    const Bytes jpeg = must_make(spec);
    const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
    const Compared compared =
        compare_region(decoder, jpeg.data(), jpeg.size(), {}, {1, 1, 30, 20}, plain);
    EXPECT_EQ(compared.difference, "");
    EXPECT_EQ(name_of(decoder.refusal()),
              name_of(scans > 64 ? JpegRefusal::kScans : JpegRefusal::kNone));
  }
  // And what they may be, in all.
  spec.scans = as_libjpeg_says(long_script(33));
  const Bytes jpeg = must_make(spec);
  JpegOptions options;
  options.scan_limit = 33;
  decoder.open(jpeg.data(), jpeg.size(), options);
  options.scan_limit = 32;
  EXPECT_THROW(decoder.open(jpeg.data(), jpeg.size(), options), RefusedImage, "than 32 scans");
  options = {};
  options.work_limit = 33 * 40 * 30 - 1;
  EXPECT_THROW(decoder.open(jpeg.data(), jpeg.size(), options), RefusedImage, "than 32 scans");
}

TEST(what_stands_between_scans) {
  JpegDecoder decoder;
  JpegSpec spec;
  spec.width = 50;
  spec.height = 50;
  spec.progressive = true;
  const Bytes jpeg = must_make(spec);
  const size_t second = segments_of(jpeg, 0xc4).back();
  const auto with = [&](const Bytes& inserted, size_t at) {
    Bytes changed = jpeg;
    changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at), inserted.begin(),
                   inserted.end());
    return std::string(name_of(refusal_of(decoder, changed)));
  };
  const size_t end = jpeg.size() - 2;
  EXPECT_EQ(with({}, second), "none");
  EXPECT_EQ(with({0xff, 0xff, 0xff}, second), "none");  // fill
  EXPECT_EQ(with({0xff, 0xff, 0xff}, end), "none");
  EXPECT_EQ(with({0xff, 0xfe, 0, 4, 1, 2}, second), "none");  // a comment
  EXPECT_EQ(with({0xff, 0xfe, 0, 4, 1, 2}, end), "none");
  EXPECT_EQ(with({0xff, 0xd0}, second), "damage");               // a restart
  EXPECT_EQ(with({0xff, 0xdc, 0, 4, 0, 50}, second), "damage");  // DNL
  EXPECT_EQ(with({0xff, 0xd8}, second), "damage");
  Bytes table{0xff, 0xdb, 0, 67, 0};
  table.resize(69, 1);
  EXPECT_EQ(with(table, second), "damage");  // a quantisation table
  Bytes cut = jpeg;
  cut.resize(end);
  EXPECT_EQ(name_of(refusal_of(decoder, cut)), std::string("end marker"));
  // What an application writes there says nothing about colours.
  Bytes adobe = jpeg;
  const Bytes segment{0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0};
  adobe.insert(adobe.begin() + static_cast<std::ptrdiff_t>(second), segment.begin(), segment.end());
  EXPECT_EQ(decoder.open(adobe.data(), adobe.size()).adobe_transform, -1);
  EXPECT(decoder.made_by() == JpegMaker::kOwn);
}

TEST(a_code_that_libjpeg_refuses_is_refused) {
  JpegDecoder decoder;
  JpegSpec spec;
  spec.progressive = true;
  spec.stored = JCS_GRAYSCALE;
  Bytes jpeg = must_make(spec);
  // A table in which all codes are taken, so that one of them is of ones only.
  const size_t table = segments_of(jpeg, 0xc4).back();
  const size_t symbols = jpeg[table + 2] * 256u + jpeg[table + 3] - 19u;
  EXPECT(symbols >= 2 && symbols <= 17);
  uint8_t* const counts = jpeg.data() + table + 5;
  std::fill_n(counts, 16, uint8_t{0});
  std::fill_n(counts, symbols - 1, uint8_t{1});
  counts[symbols - 2] = 2;
  EXPECT_EQ(name_of(refusal_of(decoder, jpeg)), std::string("damage"));
  EXPECT_THROW(decoder.begin({0, 0, 1, 1}), DecodeError, "");
}

TEST(it_stops_and_goes_on) {
  JpegSpec spec;
  spec.width = 64;
  spec.height = 200;
  spec.progressive = true;
  const Bytes jpeg = must_make(spec);
  const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
  JpegDecoder decoder;
  std::atomic<bool> stop{false};
  JpegOptions options;
  options.stop = &stop;
  // Above the region, and in it.
  for (const uint32_t top : {150u, 0u}) {
    decoder.open(jpeg.data(), jpeg.size(), options);
    decoder.begin({0, top, 64, 50});
    if (top == 0) decoder.read_row();
    stop = true;
    EXPECT_THROW(for (int i = 0; i < 50; ++i) decoder.read_row(), Stopped, "not wanted");
    stop = false;
    const Compared compared =
        compare_region(decoder, jpeg.data(), jpeg.size(), options, {3, 5, 50, 150}, plain);
    EXPECT_EQ(compared.difference, "");
    EXPECT(decoder.made_by() == JpegMaker::kOwn);
  }
}

TEST(memory_that_one_large_file_needed_is_given_back) {
  JpegSpec spec;
  spec.width = 60;
  spec.height = 60;
  spec.progressive = true;
  const Bytes small = must_make(spec);
  spec.width = 2600;
  spec.height = 2600;
  spec.quality = 100;
  const Bytes large = must_make(spec);
  EXPECT(large.size() > (size_t{6} << 20));
  JpegDecoder decoder;
  const auto decode = [&](const Bytes& jpeg, uint32_t rows) {
    decoder.open(jpeg.data(), jpeg.size());
    decoder.begin({0, 0, 8, rows});
    for (uint32_t y = 0; y < rows; ++y) decoder.read_row();
    EXPECT(decoder.made_by() == JpegMaker::kOwn);
    return decoder.scratch_bytes();
  };
  decode(small, 60);
  decoder.open(large.data(), large.size());
  decoder.begin({0, 0, 8, 20});
  EXPECT(decoder.scratch_bytes() > large.size() - large.size() / 16);
  EXPECT(decode(large, 20) < size_t{2} << 20);
  // Or if its last rows are never read.
  decoder.open(large.data(), large.size());
  decoder.begin({0, 0, 8, 20});
  EXPECT(decode(small, 60) < size_t{2} << 20);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
