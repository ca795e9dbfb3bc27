#pragma once

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "random.h"

// What the fuzz programs of PNG and WebP have in common: a loop over inputs that follow from a
// number, each written down before it is tried.

namespace fastloader::fuzz {

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// What an input may take: many times what the limit of pixels comes to.
constexpr double kMostSeconds = 2;

/// Flips, sets, cuts off, takes out and repeats bytes.
inline void damage(std::vector<uint8_t>& bytes, testing::Random& random) {
  for (uint32_t n = random.between(1, 4); n > 0 && !bytes.empty(); --n) {
    const auto size = static_cast<uint32_t>(bytes.size());
    const auto at = bytes.begin() + random.below(size);
    const auto left = static_cast<uint32_t>(bytes.end() - at);
    const auto end = at + random.between(1, left < 40 ? left : 40);
    switch (random.below(8)) {
      case 0:
        bytes.erase(at, bytes.end());
        break;
      case 1:
        bytes.erase(at, end);
        break;
      case 2: {
        const std::vector<uint8_t> piece(at, end);
        bytes.insert(bytes.begin() + random.below(size), piece.begin(), piece.end());
        break;
      }
      case 3:
        *at = static_cast<uint8_t>(random.below(256));
        break;
      default:
        *at = static_cast<uint8_t>(*at ^ 1u << random.below(8));
    }
  }
}

/// PROGRAM [INPUTS [SEED [FIRST]]]: `make(random)` gives the bytes of an input, `check(bytes,
/// random)` aborts if something is wrong with what becomes of them and says whether they decode.
template <class Make, class Check>
int run(int argc, char** argv, const Make& make, const Check& check) {
  const uint64_t inputs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const uint64_t first = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const char* const keep = std::getenv("FASTLOADER_FUZZ_KEEP");
  uint64_t decoded = 0;
  const uint64_t beginning = testing::Random(seed).next();
  for (uint64_t i = first; i < inputs; ++i) {
    testing::Random random(beginning + i);
    const std::vector<uint8_t> bytes = make(random);
    if (std::FILE* const file = keep == nullptr ? nullptr : std::fopen(keep, "wb")) {
      // An empty vector's data() may be null, which fwrite() does not take.
      if (!bytes.empty()) std::fwrite(bytes.data(), 1, bytes.size(), file);
      std::fclose(file);
    }
    const double begun = thread_seconds();
    try {
      if (check(bytes, random)) ++decoded;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "input %llu: ", static_cast<unsigned long long>(i));
      give_up(error.what());
    }
    if (thread_seconds() - begun > kMostSeconds) give_up("its work is not bounded");
  }
  std::printf("%llu inputs, %llu of them decoded: no difference\n",
              static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(decoded));
  return 0;
}

}  // namespace fastloader::fuzz
