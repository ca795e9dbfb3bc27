#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "jpeg_fuzz.h"
#include "jpeg_mutate.h"

// Runs the fuzz target without a fuzzer.
//
//   jpeg_fuzz [ITERATIONS [SEED]]   mutations of generated pictures, the same for the same numbers
//   jpeg_fuzz --seeds FOLDER        writes the generated pictures there, for libFuzzer
//   jpeg_fuzz FILE...               replays files, as libFuzzer leaves them

namespace {

using fastloader::fuzz::Bytes;
using fastloader::fuzz::JpegTally;
using fastloader::fuzz::Seed;
using fastloader::fuzz::SeedKind;
using fastloader::testing::Random;

constexpr size_t kKinds = static_cast<size_t>(SeedKind::kCount);

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

int write_seeds(const std::string& folder) {
  int count = 0;
  for (const Seed& seed : fastloader::fuzz::make_seeds()) {
    std::ofstream file(folder + "/seed" + std::to_string(count++) + ".jpg", std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.bytes.data()),
               static_cast<std::streamsize>(seed.bytes.size()));
    if (!file) {
      std::fprintf(stderr, "cannot write to %s\n", folder.c_str());
      return 1;
    }
  }
  std::printf("%d files\n", count);
  return 0;
}

int replay(int count, char** paths) {
  JpegTally tally;
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", paths[i]);
      return 1;
    }
    const Bytes bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    fastloader::fuzz::fuzz_jpeg(bytes.data(), bytes.size(), tally);
  }
  tally.print("all");
  std::printf("%d files: no difference\n", count);
  return 0;
}

/// Written before each input, so that the one that ended the program is there afterwards.
void keep(const char* path, const Bytes& bytes) {
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr) return;
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

int run(uint64_t iterations, uint64_t seed) {
  const char* path = std::getenv("FASTLOADER_FUZZ_KEEP");
  const std::vector<Seed> seeds = fastloader::fuzz::make_seeds();
  const uint32_t count = static_cast<uint32_t>(seeds.size());
  JpegTally tallies[kKinds];
  const auto fuzz = [&](const Seed& input) {
    fastloader::fuzz::fuzz_jpeg(input.bytes.data(), input.bytes.size(),
                                tallies[static_cast<size_t>(input.kind)]);
  };
  for (const Seed& each : seeds) fuzz(each);
  const uint64_t beginning = Random(seed).next();
  for (uint64_t i = 0; i < iterations; ++i) {
    Random random(beginning + i);
    // Most inputs begin as a picture that no other begins as, and some of these stay clean.
    const bool fresh = random.chance(70);
    Seed input =
        fresh ? fastloader::fuzz::make_odd_seed(random.next()) : seeds[random.below(count)];
    if (fresh && random.chance(60)) {
      for (uint32_t n = random.below(3); n > 0; --n) {
        fastloader::fuzz::damage_scans(input.bytes, random);
      }
    } else {
      for (uint32_t n = fresh ? random.below(4) : random.between(1, 4); n > 0; --n) {
        fastloader::fuzz::mutate(input.bytes, seeds[random.below(count)].bytes, random);
      }
    }
    if (path != nullptr) keep(path, input.bytes);
    fuzz(input);
  }
  for (size_t kind = 0; kind < kKinds; ++kind) {
    tallies[kind].print(fastloader::fuzz::kSeedKindNames[kind]);
  }
  std::printf("%u seeds and %llu mutations: no difference\n", count,
              static_cast<unsigned long long>(iterations));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--seeds") return write_seeds(argv[2]);
  if (argc > 1 && !is_number(argv[1])) return replay(argc - 1, argv + 1);
  const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  return run(iterations, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
