#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "jpeg_fuzz.h"
#include "jpeg_mutate.h"

// What libFuzzer calls. It sees the coverage of our code, not that of libjpeg, which is not
// instrumented. So half of the time the mutations that know what a JPEG looks like take the place
// of its own.

using fastloader::fuzz::Bytes;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Never destroyed, since libFuzzer ends by exit().
  static auto* const tally = new fastloader::fuzz::JpegTally();
  static const int registered = std::atexit([] { tally->print("all"); });
  static_cast<void>(registered);
  fastloader::fuzz::fuzz_jpeg(data, size, *tally);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  static const std::vector<fastloader::fuzz::Seed> seeds = fastloader::fuzz::make_seeds();
  fastloader::testing::Random random(seed);
  if (random.chance(50)) return LLVMFuzzerMutate(data, size, max_size);
  Bytes bytes(data, data + size);
  const auto other = random.below(static_cast<uint32_t>(seeds.size()));
  fastloader::fuzz::mutate(bytes, seeds[other].bytes, random);
  const size_t written = std::min(bytes.size(), max_size);
  if (written > 0) std::memcpy(data, bytes.data(), written);
  return written;
}
