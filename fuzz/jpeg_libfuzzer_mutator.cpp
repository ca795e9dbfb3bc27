#include <algorithm>
#include <cstring>

#include "jpeg_mutate.h"

// libFuzzer sees the coverage of our code, not that of libjpeg, which is not instrumented. So half
// of the time the mutations that know what a JPEG looks like take the place of its own.

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using fastloader::fuzz::Bytes;
  static const std::vector<Bytes> seeds = fastloader::fuzz::make_seeds();
  fastloader::testing::Random random(seed);
  if (random.chance(50)) return LLVMFuzzerMutate(data, size, max_size);
  Bytes bytes(data, data + size);
  fastloader::fuzz::mutate(bytes, seeds[random.below(static_cast<uint32_t>(seeds.size()))], random);
  const size_t written = std::min(bytes.size(), max_size);
  if (written > 0) std::memcpy(data, bytes.data(), written);
  return written;
}
