#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "image/jpeg/pillow_header.h"
#include "image/jpeg/scans.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"

// Any bytes, any region of them, any options: the decoder gives exactly what libjpeg's whole decode
// gives, cropped, or fails where that fails. Any difference aborts.

namespace {

using namespace fastloader;
using testing::PlainJpeg;
using testing::Random;

// Large enough that a file of a few kilobytes would take many seconds, were its scans not counted.
constexpr uint64_t kPixelLimit = 1 << 22;
constexpr uint64_t kWorkLimit = 1 << 24;
// What the decoder may take for all regions of an input: many times what the limits above come to.
constexpr double kMostSeconds = 2;
constexpr int kRegions = 3;

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

/// Counted without a decoder: never fewer than libjpeg begins, and no more where it sees the end.
void check_scans(const uint8_t* data, size_t size, const PlainJpeg& plain) {
  const std::vector<uint8_t> bytes(data,
                                   data + size);  // of that size, so that a step beyond is seen
  const JpegScans counted = count_jpeg_scans(bytes.data(), bytes.size());
  if (plain.end() == PlainJpeg::End::kRefused && plain.scans == 0) return;
  const bool too_few = counted.scans < plain.scans;
  if (!too_few && (!plain.finished || plain.padded || counted.scans == plain.scans)) return;
  std::fprintf(stderr, "jpeg_fuzz: counted %llu scans, libjpeg has begun %u\n",
               static_cast<unsigned long long>(counted.scans), plain.scans);
  std::abort();
}

void check(JpegDecoder& decoder, const uint8_t* data, size_t size, const JpegOptions& options,
           int denominator, Random& random) {
  const PlainJpeg plain(data, size, options.truncated == Truncated::kPad, options.pixel_limit,
                        denominator, options.work_limit);
  check_scans(data, size, plain);
  const double begun = thread_seconds();
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
  const double took = thread_seconds() - begun;
  if (took > kMostSeconds) {
    std::fprintf(stderr, "jpeg_fuzz: %.1f s for %zu bytes: its work is not bounded\n", took, size);
    std::abort();
  }
}

/// In memory of exactly that size, so that a step beyond it is seen.
void look_at_header(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  stumbling_block_of_pillow(bytes.data(), bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  look_at_header(data, size);
  static JpegDecoder decoder;  // one for all inputs: nothing may pass from one to the next
  Random random(hash_of(data, size));
  JpegOptions options;
  options.pixel_limit = kPixelLimit;
  options.work_limit = kWorkLimit;
  const int denominator = random.chance(80) ? 1 : 1 << random.between(1, 3);
  options.check_below = random.chance(20);
  check(decoder, data, size, options, denominator, random);
  options.truncated = Truncated::kPad;
  check(decoder, data, size, options, denominator, random);
  return 0;
}
