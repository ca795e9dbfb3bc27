#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "jpeg_mutate.h"

// Runs the fuzz target without a fuzzer.
//
//   jpeg_fuzz [ITERATIONS [SEED]]   mutations of generated pictures, the same for the same numbers
//   jpeg_fuzz --seeds FOLDER        writes the generated pictures there, for libFuzzer
//   jpeg_fuzz FILE...               replays files, as libFuzzer leaves them

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using fastloader::fuzz::Bytes;
using fastloader::testing::Random;

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

int write_seeds(const std::string& folder) {
  int count = 0;
  for (const Bytes& seed : fastloader::fuzz::make_seeds()) {
    std::ofstream file(folder + "/seed" + std::to_string(count++) + ".jpg", std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    if (!file) {
      std::fprintf(stderr, "cannot write to %s\n", folder.c_str());
      return 1;
    }
  }
  std::printf("%d files\n", count);
  return 0;
}

int replay(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path);
    return 1;
  }
  const Bytes bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
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
  const std::vector<Bytes> seeds = fastloader::fuzz::make_seeds();
  const uint32_t count = static_cast<uint32_t>(seeds.size());
  for (const Bytes& bytes : seeds) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  for (uint64_t i = 0; i < iterations; ++i) {
    Random random(seed * 0x10001u + i);
    Bytes bytes = seeds[random.below(count)];
    for (uint32_t n = random.between(1, 4); n > 0; --n) {
      fastloader::fuzz::mutate(bytes, seeds[random.below(count)], random);
    }
    if (path != nullptr) keep(path, bytes);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%u seeds and %llu mutations: no difference\n", count,
              static_cast<unsigned long long>(iterations));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--seeds") return write_seeds(argv[2]);
  if (argc == 1 || is_number(argv[1])) {
    const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
    return run(iterations, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  }
  for (int i = 1; i < argc; ++i) {
    if (replay(argv[i]) != 0) return 1;
  }
  std::printf("%d files: no difference\n", argc - 1);
  return 0;
}
