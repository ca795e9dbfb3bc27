// MemorySource: copies of what lies in memory, also where its file is cut off, entries that come
// later, and what is not there.

#include "source/memory_source.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "child_process.h"
#include "gated_source.h"
#include "mapped_file.h"
#include "pipeline/sample_decoder.h"

namespace fastloader::testing {
namespace {

uint64_t address_of(const std::vector<uint8_t>& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

TEST(memory_source_gives_copies) {
  const std::vector<uint8_t> first = {1, 2, 3};
  const std::vector<uint8_t> second = {4};
  uint64_t addresses[] = {address_of(first), 0};
  uint64_t sizes[] = {first.size(), 0};
  const fastloader::MemorySource source({addresses, sizes}, {}, 2);
  EXPECT_EQ(source.size(), 2u);
  EXPECT(!source.view(0));  // a file may be mapped there
  std::vector<uint8_t> bytes(1, 9);
  source.read_seek_index(0, bytes);
  EXPECT(bytes.empty());
  source.read(0, bytes);
  EXPECT(bytes == first);

  EXPECT_THROW(source.read(1, bytes), SourceError, "cannot read sample 1: it was not found");
  addresses[1] = address_of(second);
  sizes[1] = second.size();
  source.read(1, bytes);
  EXPECT(bytes == second);
  EXPECT_THROW(source.read(2, bytes), InvalidArgument, "sample 2 of 2");
  sizes[1] = uint64_t{1} << 40;
  EXPECT_THROW(source.read(1, bytes), SourceError, "cannot read sample 1: more than 1 GiB");
}

TEST(memory_source_has_seek_indices_beside_the_samples) {
  const std::vector<uint8_t> file = {1, 2, 3};
  const std::vector<uint8_t> index = {4, 5};
  const uint64_t addresses[] = {address_of(file), address_of(file)};
  const uint64_t sizes[] = {file.size(), file.size()};
  const uint64_t indices[] = {0, address_of(index)};
  const uint64_t index_sizes[] = {0, index.size()};
  const fastloader::MemorySource source({addresses, sizes}, {indices, index_sizes}, 2);
  std::vector<uint8_t> found(1, 9);
  source.read_seek_index(0, found);
  EXPECT(found.empty());
  source.read_seek_index(1, found);
  EXPECT(found == index);
}

TEST(of_a_large_sample_that_is_not_wanted_the_beginning_is_read) {
  const std::vector<uint8_t> large(size_t{1} << 20, 7);
  const std::vector<uint8_t> small(1000, 8);
  const uint64_t addresses[] = {address_of(large), address_of(small)};
  const uint64_t sizes[] = {large.size(), small.size()};
  const fastloader::MemorySource source({addresses, sizes}, {}, 2);
  std::vector<uint8_t> bytes;
  const auto no = [](const uint8_t*, size_t) { return false; };
  const auto yes = [](const uint8_t*, size_t) { return true; };
  EXPECT(source.read_if(0, bytes, no, large.size()));
  EXPECT(bytes == std::vector<uint8_t>(size_t{256} << 10, 7));
  EXPECT(source.read_if(0, bytes, yes, large.size()));
  EXPECT(bytes == large);
  EXPECT(source.read_if(1, bytes, no, large.size()));
  EXPECT(bytes == small);
  EXPECT(!source.read_if(0, bytes, yes, large.size() - 1));
}

TEST(a_sample_of_a_file_that_was_cut_off_is_an_error_and_no_other_is) {
  const auto body = [] {
    const MappedFile file(std::vector<uint8_t>(40960, 5));
    const auto begin = reinterpret_cast<uint64_t>(file.data());
    const uint64_t addresses[] = {begin, begin + 4000, begin + 20000};
    const uint64_t sizes[] = {4000, 12000, 300};
    // Of the second sample the index is gone; it is decoded without.
    const uint64_t indices[] = {begin + 8, begin + 40000, 0};
    const uint64_t index_sizes[] = {4, 4, 0};
    const fastloader::MemorySource source({addresses, sizes}, {indices, index_sizes}, 3);
    file.cut(16384);
    std::vector<uint8_t> bytes;
    source.read(0, bytes);
    EXPECT(bytes == std::vector<uint8_t>(4000, 5));
    source.read(1, bytes);
    EXPECT_THROW(source.read(2, bytes), SourceError, "cannot read sample 2: the file that it is");
    source.read_seek_index(0, bytes);
    EXPECT_EQ(bytes.size(), 4u);
    source.read_seek_index(1, bytes);
    EXPECT(bytes.empty());
    file.cut(0);
    EXPECT_THROW(source.read(0, bytes), SourceError, "cannot read sample 0");
  };
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
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
