#include "jpeg_fuzz.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "image/dispatch.h"
#include "image/jpeg/libjpeg/recode.h"
#include "image/jpeg/pillow_header.h"
#include "image/jpeg/scans.h"
#include "image/orientation.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"

namespace fastloader::fuzz {
namespace {

using testing::Compared;
using testing::PlainJpeg;
using testing::Random;

// The limit of pixels is off: work alone is bounded. Large enough that a file of a few kilobytes
// would take many seconds, were its scans not counted.
constexpr uint64_t kWorkLimit = 1 << 24;
// What a decoder may take for all regions of an input: many times what the limit above comes to.
constexpr double kMostSeconds = 2;
constexpr int kRegions = 3;
constexpr uint64_t kMostRecoded = 1 << 16;  // pixels

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

uint64_t hash_of(const uint8_t* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash;
}

/// A decoder for each instruction set that there is, scalar first.
struct Decoders {
  std::vector<std::string> names = available_isa_names();
  std::vector<std::unique_ptr<JpegDecoder>> all;

  Decoders() {
    std::reverse(names.begin(), names.end());
    for (const std::string& name : names) {
      all.push_back(std::make_unique<JpegDecoder>(isa_by_name(name)));
    }
  }
};

/// What is asked of every decoder.
struct Input {
  const uint8_t* data;
  size_t size;
  JpegOptions options;
  int denominator;
  std::vector<JpegRegion> regions;

  [[noreturn]] void abort(const std::string& isa, const std::string& what) const {
    std::fprintf(stderr, "jpeg_fuzz: %s, pad %d, check_below %d, 1/%d of the size: %s\n",
                 isa.c_str(), options.truncated == Truncated::kPad ? 1 : 0,
                 options.check_below ? 1 : 0, denominator, what.c_str());
    std::abort();
  }
};

/// Counted without a decoder: never fewer than libjpeg begins, and no more where it sees the end.
void check_scans(const uint8_t* data, size_t size, const PlainJpeg& plain) {
  // Of that size, so that a step beyond is seen.
  const std::vector<uint8_t> bytes(data, data + size);
  const JpegScans counted = count_jpeg_scans(bytes.data(), bytes.size());
  if (plain.end() == PlainJpeg::End::kRefused && plain.scans == 0) return;
  const bool too_few = counted.scans < plain.scans;
  if (!too_few && (!plain.finished || plain.padded || counted.scans == plain.scans)) return;
  std::fprintf(stderr, "jpeg_fuzz: counted %llu scans, libjpeg has begun %u\n",
               static_cast<unsigned long long>(counted.scans), plain.scans);
  std::abort();
}

/// A file that is written again as a sequential one keeps its pixels.
void check_recoded(const uint8_t* data, size_t size) {
  const std::optional<std::vector<uint8_t>> sequential = recode_as_sequential(data, size);
  if (!sequential) return;
  const auto plain = [](const uint8_t* bytes, size_t count) {
    return PlainJpeg(bytes, count, false, PictureOptions().pixel_limit);
  };
  const PlainJpeg before = plain(data, size);
  const PlainJpeg after = plain(sequential->data(), sequential->size());
  if (before.end() == PlainJpeg::End::kFine && after.end() == before.end() &&
      before.rgb == after.rgb) {
    return;
  }
  std::fprintf(stderr, "jpeg_fuzz: other pixels once it is written again as a sequential file\n");
  std::abort();
}

/// Whether the rows are those of the same bytes with an end marker behind them. libjpeg looks
/// before each MCU whether the data have been whole so far, and smooths a progressive picture by
/// that. A source that suspends behind a restart, as Pillow's may, lets it look once more, after
/// the restart has made up for earlier damage. JpegDecoder's source has the end marker at once.
bool equals_unsuspended(const Input& input, const PlainJpeg& plain, const JpegRegion& region,
                        const Compared& compared) {
  if (!plain.padded || compared.rgb.size() != size_t{region.width} * region.height * 3)
    return false;
  std::vector<uint8_t> ended(input.data, input.data + input.size);
  ended.insert(ended.end(), {0xff, 0xd9});
  const PlainJpeg other(ended.data(), ended.size(), false, input.options.pixel_limit,
                        input.denominator, input.options.work_limit);
  if (other.rgb.size() != plain.rgb.size()) return false;
  for (uint32_t y = 0; y < region.height; ++y) {
    const size_t row = size_t{region.width} * 3;
    const uint8_t* expected = other.pixel(region.left, region.top + y);
    if (!std::equal(expected, expected + row, compared.rgb.data() + y * row)) return false;
  }
  return true;
}

/// What one decoder makes of the regions.
std::vector<Compared> decode(JpegDecoder& decoder, const std::string& isa, const Input& input,
                             const PlainJpeg& plain, JpegTally& seen) {
  std::vector<Compared> all;
  const double begun = thread_seconds();
  for (const JpegRegion& region : input.regions) {
    all.push_back(
        testing::compare_region(decoder, input.data, input.size, input.options, region, plain));
    const Compared& compared = all.back();
    if (!compared.difference.empty() && !equals_unsuspended(input, plain, region, compared)) {
      input.abort(isa, compared.difference);
    }
    if (!compared.rgb.empty()) ++seen.decoded;
    if (compared.own) ++seen.own;
    if (compared.begun && decoder.made_by() == JpegMaker::kLibjpeg) {
      ++seen.handed;
      ++seen.reasons[name_of(decoder.refusal())];
    }
  }
  const double took = thread_seconds() - begun;
  if (took > kMostSeconds) {
    input.abort(isa, std::to_string(took) + " s for " + std::to_string(input.size) +
                         " bytes: its work is not bounded");
  }
  return all;
}

/// Whether libjpeg decodes all of it.
bool check(Decoders& decoders, Input& input, Random& random, JpegTally& seen) {
  const PlainJpeg plain(input.data, input.size, input.options.truncated == Truncated::kPad,
                        input.options.pixel_limit, input.denominator, input.options.work_limit);
  check_scans(input.data, input.size, plain);
  if (uint64_t{plain.width} * plain.height <= kMostRecoded) check_recoded(input.data, input.size);
  input.regions.assign(1, {0, 0, 1, 1});
  if (plain.height > 0) {
    input.regions[0] = {0, 0, plain.width, plain.height};
    while (input.regions.size() < kRegions) {
      input.regions.push_back(testing::random_region(random, plain.width, plain.height));
    }
  }
  const std::vector<Compared> scalar =
      decode(*decoders.all[0], decoders.names[0], input, plain, seen);
  // libjpeg does not know of our instruction sets.
  const size_t end = seen.own > 0 || random.chance(20) ? decoders.all.size() : 1;
  for (size_t i = 1; i < end; ++i) {
    const std::vector<Compared> other =
        decode(*decoders.all[i], decoders.names[i], input, plain, seen);
    for (size_t region = 0; region < other.size(); ++region) {
      if (other[region].rgb != scalar[region].rgb) {
        input.abort(decoders.names[i], "other pixels than without vectors");
      }
      if (other[region].failure != scalar[region].failure) {
        input.abort(decoders.names[i],
                    "'" + other[region].failure + "' and not '" + scalar[region].failure + "'");
      }
    }
  }
  return plain.end() == PlainJpeg::End::kFine;
}

/// In memory of exactly that size, so that a step beyond it is seen.
void look_at_header(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  stumbling_block_of_pillow(bytes.data(), bytes.size());
  read_orientation(bytes.data(), bytes.size());
}

}  // namespace

void JpegTally::print(const char* name) const {
  std::printf("%s: %llu inputs, rows of %llu, by our own decoder of %llu, handed over %llu\n", name,
              static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(decoded),
              static_cast<unsigned long long>(own), static_cast<unsigned long long>(handed));
  for (const auto& [reason, count] : reasons) {
    std::printf("%12llu  %s\n", static_cast<unsigned long long>(count), reason.c_str());
  }
}

void fuzz_jpeg(const uint8_t* data, size_t size, JpegTally& tally) {
  look_at_header(data, size);
  static Decoders decoders;  // for all inputs: nothing may pass from one to the next
  Random random(hash_of(data, size));
  JpegOptions options;
  options.pixel_limit = UINT64_MAX;
  options.work_limit = kWorkLimit;
  options.check_below = random.chance(20);
  const int denominator = random.chance(80) ? 1 : 1 << random.between(1, 3);
  Input input{data, size, options, denominator, {}};
  JpegTally seen;
  const bool fine = check(decoders, input, random, seen);
  // What is whole has nothing to pad: most of these are not decoded a second time.
  if (!fine || random.chance(10)) {
    input.options.truncated = Truncated::kPad;
    check(decoders, input, random, seen);
  }
  ++tally.inputs;
  if (seen.decoded > 0) ++tally.decoded;
  if (seen.own > 0) ++tally.own;
  if (seen.handed > 0) ++tally.handed;
  for (const auto& [reason, count] : seen.reasons) ++tally.reasons[reason];
}

}  // namespace fastloader::fuzz
