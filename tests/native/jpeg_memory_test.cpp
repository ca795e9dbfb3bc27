#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "counted_allocations.h"
#include "image/jpeg/decoder.h"
#include "image/jpeg/seek/writer.h"
#include "jpeg_compare.h"
#include "jpeg_samples.h"

// What decoding costs beside time.

namespace fastloader {
namespace {

using namespace testing;

std::vector<std::vector<uint8_t>> usual_files() {
  constexpr JpegSampling kFirst[] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}};
  std::vector<std::vector<uint8_t>> files;
  for (uint64_t i = 0; i < 40; ++i) {
    JpegSpec spec;
    spec.width = 20 + static_cast<uint32_t>(i) * 5;
    spec.height = 220 - static_cast<uint32_t>(i) * 5;
    spec.stored = i % 10 == 9 ? JCS_GRAYSCALE : JCS_YCbCr;
    spec.sampling[0] = kFirst[i % 4];
    spec.progressive = i % 3 == 0;
    spec.optimize = i % 2 == 0;
    spec.restart_blocks = i % 5 == 0 ? 7 : 0;
    spec.seed = i;
    files.push_back(make_jpeg(spec));
    EXPECT(!files.back().empty());
  }
  return files;
}

void decode(JpegDecoder& decoder, const std::vector<uint8_t>& file, const JpegRegion& region,
            const std::vector<uint8_t>& index = {}) {
  JpegOptions options;
  options.seek_index = {index.data(), index.size()};
  decoder.open(file.data(), file.size(), options);
  decoder.begin(region);
  while (decoder.rows_left() > 0) decoder.read_row();
}

TEST(a_thousand_pictures_allocate_nothing) {
  const std::vector<std::vector<uint8_t>> files = usual_files();
  std::vector<std::vector<uint8_t>> indices;
  for (const std::vector<uint8_t>& file : files) {
    indices.push_back(make_seek_index(file.data(), file.size(), 4));
  }
  JpegDecoder decoder;
  Random random(1801);
  for (const std::vector<uint8_t>& file : files) {
    const JpegHeader& header = decoder.open(file.data(), file.size());
    decode(decoder, file, {0, 0, header.width, header.height});
  }
  const size_t scratch = decoder.scratch_bytes();
  size_t indexed = 0;
  const size_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    const size_t which = random.below(static_cast<uint32_t>(files.size()));
    const std::vector<uint8_t>& file = files[which];
    const JpegHeader& header = decoder.open(file.data(), file.size());
    decode(decoder, file, random_region(random, header.width, header.height), indices[which]);
    EXPECT(decoder.made_by() == JpegMaker::kOwn);
    if (decoder.seek_use() == SeekUse::kUsed) ++indexed;
  }
  EXPECT(indexed > 100);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(decoder.scratch_bytes(), scratch);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
