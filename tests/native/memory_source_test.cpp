// MemorySource: views of what lies in memory, entries that come later, and what is not there.

#include "source/memory_source.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "gated_source.h"
#include "pipeline/sample_decoder.h"

namespace fastloader::testing {
namespace {

uint64_t address_of(const std::vector<uint8_t>& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

TEST(memory_source_gives_views_and_copies) {
  const std::vector<uint8_t> first = {1, 2, 3};
  const std::vector<uint8_t> second = {4};
  uint64_t addresses[] = {address_of(first), 0};
  uint64_t sizes[] = {first.size(), 0};
  const fastloader::MemorySource source({addresses, sizes}, {}, 2);
  EXPECT_EQ(source.size(), 2u);
  const SampleBytes seen = *source.view(0);
  EXPECT(seen.data == first.data());
  EXPECT_EQ(seen.size, 3u);
  EXPECT(seen.seek_index == nullptr);
  std::vector<uint8_t> bytes;
  source.read(0, bytes);
  EXPECT(bytes == first);

  EXPECT_THROW(source.view(1), SourceError, "cannot read sample 1");
  EXPECT_THROW(source.read(1, bytes), SourceError, "cannot read sample 1");
  addresses[1] = address_of(second);
  sizes[1] = second.size();
  source.read(1, bytes);
  EXPECT(bytes == second);
  EXPECT_THROW(source.view(2), InvalidArgument, "sample 2 of 2");
}

TEST(memory_source_has_seek_indices_beside_the_samples) {
  const std::vector<uint8_t> file = {1, 2, 3};
  const std::vector<uint8_t> index = {4, 5};
  const uint64_t addresses[] = {address_of(file), address_of(file)};
  const uint64_t sizes[] = {file.size(), file.size()};
  const uint64_t indices[] = {0, address_of(index)};
  const uint64_t index_sizes[] = {0, index.size()};
  const fastloader::MemorySource source({addresses, sizes}, {indices, index_sizes}, 2);
  const SampleBytes without = *source.view(0);
  EXPECT_EQ(without.seek_index_size, 0u);
  const SampleBytes with = *source.view(1);
  EXPECT(with.seek_index == index.data());
  EXPECT_EQ(with.seek_index_size, 2u);
}

TEST(memory_source_is_decoded_like_a_copy) {
  const std::vector<std::vector<uint8_t>> files = small_pictures(6);
  std::vector<uint64_t> addresses;
  std::vector<uint64_t> sizes;
  for (const std::vector<uint8_t>& file : files) {
    addresses.push_back(address_of(file));
    sizes.push_back(file.size());
  }
  ImageJob viewing;
  viewing.transform.random_crop = CropRange{};
  viewing.transform.scale = ImageTransform::Scale::kExact;
  viewing.transform.exact = {5, 6};
  ImageJob copying = viewing;
  viewing.source = std::make_shared<fastloader::MemorySource>(
      fastloader::MemorySource::Table{addresses.data(), sizes.data()},
      fastloader::MemorySource::Table{}, files.size());
  copying.source = std::make_shared<MemorySource>(files);
  SampleDecoder decoder;
  for (uint64_t i = 0; i < files.size(); ++i) {
    std::vector<uint8_t> one(viewing.sample_bytes());
    std::vector<uint8_t> other(copying.sample_bytes());
    decoder.decode(viewing, i, 7, one.data());
    decoder.decode(copying, i, 7, other.data());
    EXPECT(one == other);
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
