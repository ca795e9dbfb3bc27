#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/xxh3.h"
#include "check.h"
#include "child_process.h"
#include "image/dispatch.h"
#include "image/jpeg/seek/file.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/seek/writer.h"
#include "jpeg_compare.h"
#include "jpeg_odd_files.h"
#include "mapped_file.h"

// A seek index changes what is parsed, never what comes out.

namespace fastloader {
namespace {

using namespace testing;
using Bytes = std::vector<uint8_t>;

std::vector<std::unique_ptr<JpegDecoder>> decoders_of_all_isas() {
  std::vector<std::unique_ptr<JpegDecoder>> decoders;
  for (const std::string& name : available_isa_names()) {
    decoders.push_back(std::make_unique<JpegDecoder>(isa_by_name(name)));
  }
  return decoders;
}

JpegOptions with_index(const Bytes& index) {
  JpegOptions options;
  options.seek_index = {index.data(), index.size()};
  return options;
}

/// Of a picture of some rows and columns of MCUs.
Bytes clean_jpeg(uint64_t seed, JpegSampling first = {1, 1}) {
  JpegSpec spec;
  spec.width = 150;
  spec.height = 130;
  spec.sampling[0] = first;
  spec.quality = 92;
  spec.seed = seed;
  return make_jpeg(spec);
}

/// Makes an index right again after it was changed.
void sign(Bytes& index) {
  const size_t checked = index.size() - kSeekChecksumBytes;
  const uint64_t hash = xxh3(index.data(), checked);
  std::memcpy(index.data() + checked, &hash, sizeof hash);
}

TEST(xxh3_is_that_of_the_package_xxhash) {
  struct Known {
    size_t size;
    uint64_t hash;
  };
  // Of bytes (7 i + size) mod 256, by the Python package xxhash.
  const Known known[] = {
      {0, 0x2d06800538d394c2},    {1, 0xe12ef9d2eb86ceeb},    {3, 0xa9088dda485b481c},
      {4, 0x57648c318a7a307e},    {8, 0xb0fb3e3c3f94990a},    {9, 0x8aca5cb309437c2e},
      {16, 0x2bd926d88792965a},   {17, 0x621f018aad19b14a},   {64, 0x1b1bf114c7371f1b},
      {65, 0xf0037f8ac0441cc4},   {128, 0xe9549af9a74093e6},  {129, 0xb54ad1cd8a4c84b9},
      {240, 0x3e136902ec966624},  {241, 0xbd7d29b6ba966d6a},  {1024, 0xdc5acf0b043c445b},
      {1025, 0xc856c953bbdbc807}, {5000, 0x308f149a673a1625},
  };
  for (const Known& each : known) {
    Bytes bytes(each.size);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(7 * i + each.size);
    }
    EXPECT_EQ(xxh3(bytes.data(), bytes.size()), each.hash);
  }
}

TEST(regions_with_an_index_equal_the_whole_decode) {
  const auto decoders = decoders_of_all_isas();
  size_t used = 0;
  size_t without = 0;
  for (uint64_t number = 0; number < 1500; ++number) {
    const OddJpeg odd = make_odd_jpeg(number);
    Random random(number);
    JpegDecoder& decoder = *decoders[number % decoders.size()];
    const Bytes index = make_seek_index(odd.bytes.data(), odd.bytes.size(), random.between(1, 9));
    EXPECT_EQ(index.empty(), odd.traits.has(OddTrait::kProgressive) ||
                                 odd.traits.has(OddTrait::kRestarts) ||
                                 odd.traits.has(OddTrait::kSeveralScans));
    if (index.empty()) {
      ++without;
      continue;
    }
    const PlainJpeg plain(odd.bytes.data(), odd.bytes.size(), false, kPillowPixelLimit);
    for (int i = 0; i < 8; ++i) {
      const JpegRegion region = random_region(random, plain.width, plain.height);
      const Compared compared = compare_region(decoder, odd.bytes.data(), odd.bytes.size(),
                                               with_index(index), region, plain);
      if (!compared.difference.empty()) throw Failure{odd.name() + ": " + compared.difference};
      EXPECT(compared.own);
      if (decoder.seek_use() == SeekUse::kUnfit) throw Failure{odd.name() + ": its index is unfit"};
      if (decoder.seek_use() == SeekUse::kUsed) ++used;
    }
  }
  EXPECT(used > 800);
  EXPECT(without > 200);
}

TEST(an_index_is_the_same_on_every_instruction_set) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Bytes file = clean_jpeg(seed, seed % 2 == 0 ? JpegSampling{1, 1} : JpegSampling{2, 2});
    const Bytes scalar = make_seek_index(file.data(), file.size(), 4, isa_by_name("scalar"));
    EXPECT(!scalar.empty());
    for (const std::string& name : available_isa_names()) {
      EXPECT(make_seek_index(file.data(), file.size(), 4, isa_by_name(name)) == scalar);
    }
  }
}

/// A region for which an index saves much.
JpegRegion inner_region(Random& random, const PlainJpeg& plain) {
  JpegRegion region;
  region.width = 1 + random.below(plain.width / 3);
  region.height = 1 + random.below(plain.height / 3);
  region.left = plain.width / 3 + random.below(plain.width / 3);
  region.top = plain.height / 3 + random.below(plain.height / 3);
  return region;
}

/// Decodes a few regions with the index; returns how often it was used.
size_t expect_right_pixels(JpegDecoder& decoder, const Bytes& file, const Bytes& index,
                           const PlainJpeg& plain, Random& random, const std::string& what) {
  const Bytes exact(index);  // of that size, so that a step beyond is seen
  size_t used = 0;
  for (int i = 0; i < 3; ++i) {
    const Compared compared = compare_region(decoder, file.data(), file.size(), with_index(exact),
                                             inner_region(random, plain), plain);
    if (!compared.difference.empty()) throw Failure{what + ": " + compared.difference};
    EXPECT(compared.own);
    if (decoder.seek_use() == SeekUse::kUsed) ++used;
  }
  return used;
}

TEST(a_changed_index_is_not_used) {
  const auto decoders = decoders_of_all_isas();
  const Bytes file = clean_jpeg(1);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  Random random(1);
  EXPECT(expect_right_pixels(*decoders[0], file, index, plain, random, "unchanged") == 3);
  for (size_t byte = 0; byte < index.size(); ++byte) {
    Bytes changed = index;
    changed[byte] ^= static_cast<uint8_t>(1u << random.below(8));
    EXPECT_EQ(expect_right_pixels(*decoders[byte % decoders.size()], file, changed, plain, random,
                                  "byte " + std::to_string(byte)),
              0u);
    changed.resize(byte);
    EXPECT_EQ(expect_right_pixels(*decoders[0], file, changed, plain, random,
                                  std::to_string(byte) + " bytes"),
              0u);
  }
}

/// Where the fields of an index lie, in bits.
struct Fields {
  explicit Fields(const Bytes& index)
      : position(index[2]), entry(position + size_t{index[4]} + index[5] + index[6]) {
    count = size_t{index[1]} * (index[10] + 256u * index[11]);
  }
  size_t position;
  size_t entry;
  size_t count;
};

bool bit_of(const Bytes& index, size_t bit) {
  return (index[kSeekHeaderBytes + bit / 8] >> (bit % 8) & 1) != 0;
}

void flip(Bytes& index, size_t bit) {
  index[kSeekHeaderBytes + bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
}

/// A prediction that is wrong is one that is wrong where the next segment begins.
TEST(a_wrong_prediction_is_found_before_its_row_is_given) {
  const auto decoders = decoders_of_all_isas();
  const Bytes file = clean_jpeg(2);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  const Fields fields(index);
  Random random(2);
  size_t unfit = 0;
  for (size_t segment = 0; segment < fields.count; ++segment) {
    for (size_t bit = fields.position; bit < fields.entry; ++bit) {
      Bytes changed = index;
      flip(changed, segment * fields.entry + bit);
      sign(changed);
      JpegDecoder& decoder = *decoders[bit % decoders.size()];
      expect_right_pixels(decoder, file, changed, plain, random, std::to_string(segment));
      if (decoder.seek_use() == SeekUse::kUnfit) ++unfit;
    }
  }
  EXPECT(unfit > fields.count);
}

TEST(segments_in_another_order_are_found_before_their_rows_are_given) {
  const auto decoders = decoders_of_all_isas();
  const Bytes file = clean_jpeg(2);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  const Fields fields(index);
  Random random(3);
  size_t unfit = 0;
  for (size_t i = 0; i < 1000; ++i) {
    Bytes changed = index;
    const size_t a = random.below(static_cast<uint32_t>(fields.count)) * fields.entry;
    const size_t b = random.below(static_cast<uint32_t>(fields.count)) * fields.entry;
    for (size_t bit = 0; bit < fields.entry; ++bit) {
      if (bit_of(index, a + bit) == bit_of(index, b + bit)) continue;
      flip(changed, a + bit);
      flip(changed, b + bit);
    }
    sign(changed);
    JpegDecoder& decoder = *decoders[i % decoders.size()];
    expect_right_pixels(decoder, file, changed, plain, random, "swapped");
    if (decoder.seek_use() == SeekUse::kUnfit) ++unfit;
  }
  EXPECT(unfit > 100);
}

/// A forged place within a block may lead back to the right one before the next segment begins, so
/// other pixels are possible. That all rows come, and that nothing else is read, is not too much.
TEST(a_forged_index_reads_nothing_else) {
  const auto decoders = decoders_of_all_isas();
  const Bytes file = clean_jpeg(2);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  const size_t checked = index.size() - kSeekChecksumBytes;
  Random random(4);
  size_t unfit = 0;
  for (size_t i = 0; i < 5000; ++i) {
    Bytes changed = index;
    for (uint32_t n = random.between(1, 3); n > 0; --n) {
      // The whole index, whose sizes and widths are to be wrong, too.
      const size_t byte = random.chance(20) ? random.below(24) : random.below(uint32_t(checked));
      changed[byte] = static_cast<uint8_t>(
          random.chance(50) ? random.next() : changed[byte] ^ 1u << random.below(8));
    }
    sign(changed);
    JpegDecoder& decoder = *decoders[i % decoders.size()];
    const JpegRegion region = inner_region(random, plain);
    decoder.open(file.data(), file.size(), with_index(changed));
    decoder.begin(region);
    for (uint32_t y = 0; y < region.height; ++y) decoder.read_row();
    EXPECT(decoder.made_by() == JpegMaker::kOwn);
    if (decoder.seek_use() == SeekUse::kUnfit) ++unfit;
  }
  EXPECT(unfit > 1000);
}

TEST(an_index_of_another_file_is_not_used) {
  const Bytes file = clean_jpeg(3);
  const Bytes other = clean_jpeg(4);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const Bytes index = make_seek_index(other.data(), other.size(), 4);
  JpegDecoder decoder;
  Random random(3);
  EXPECT_EQ(expect_right_pixels(decoder, file, index, plain, random, "another's"), 0u);
  decoder.open(file.data(), file.size(), with_index(index));
  decoder.begin({60, 60, 30, 30});
  decoder.read_row();
  EXPECT(decoder.seek_use() == SeekUse::kUnfit);
  EXPECT(decoder.made_by() == JpegMaker::kOwn);
}

/// It may have any damage: the index knows nothing of it.
TEST(an_index_of_a_file_that_was_changed_is_not_used) {
  const Bytes file = clean_jpeg(3);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  JpegDecoder decoder;
  const auto use_of = [&](const Bytes& bytes) {
    decoder.open(bytes.data(), bytes.size(), with_index(index));
    decoder.begin({60, 60, 30, 30});
    decoder.read_row();
    return decoder.seek_use();
  };
  EXPECT(use_of(file) == SeekUse::kUsed);
  Bytes changed = file;
  constexpr size_t kDensity = 15;  // in the JFIF header, where it says nothing about pixels
  changed[kDensity] ^= 1;
  EXPECT(use_of(changed) == SeekUse::kUnfit);
}

/// Damage that an index passes over is still found by those who ask for it.
TEST(with_check_below_no_index_is_used) {
  const Bytes file = clean_jpeg(5);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  JpegOptions options = with_index(index);
  options.check_below = true;
  JpegDecoder decoder;
  decoder.open(file.data(), file.size(), options);
  decoder.begin({60, 60, 30, 30});
  for (int y = 0; y < 30; ++y) decoder.read_row();
  EXPECT(decoder.seek_use() == SeekUse::kNone);
}

TEST(what_saves_next_to_nothing_is_left_out) {
  const Bytes file = clean_jpeg(6);
  const Bytes index = make_seek_index(file.data(), file.size(), 4);
  JpegDecoder decoder;
  decoder.open(file.data(), file.size(), with_index(index));
  decoder.begin({0, 0, 150, 130});
  decoder.read_row();
  EXPECT(decoder.seek_use() == SeekUse::kNone);
  // A small picture that takes a few hundred bytes has none at all.
  JpegSpec spec;
  const Bytes small = make_jpeg(spec);
  EXPECT(make_seek_index(small.data(), small.size()).empty());
  EXPECT(!make_seek_index(small.data(), small.size(), 4).empty());
  EXPECT(make_seek_index(file.data(), file.size()).size() * 32 <= file.size());
}

TEST(damage_and_progressive_files_have_no_index) {
  Bytes file = clean_jpeg(7);
  for (const size_t cut : {size_t{1}, size_t{2}, size_t{50}, file.size() / 2}) {
    EXPECT(make_seek_index(file.data(), file.size() - cut, 4).empty());
  }
  file.insert(file.end() - 2, 0x00);
  EXPECT(make_seek_index(file.data(), file.size(), 4).empty());
  JpegSpec spec;
  spec.progressive = true;
  const Bytes progressive = make_jpeg(spec);
  EXPECT(make_seek_index(progressive.data(), progressive.size(), 4).empty());
}

void put(Bytes& out, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(number >> (8 * i)));
}

/// The file of these indices, as docs/seek-index.md describes it.
Bytes seek_file(std::vector<std::pair<uint64_t, Bytes>> indices) {
  std::sort(indices.begin(), indices.end());
  Bytes bytes{'f', 'l', 'j', 'p', 's', 'e', 'e', 'k', 1, 0, 0, 0, 0, 0, 0, 0};
  put(bytes, indices.size(), 8);
  put(bytes, 0, 8);
  Bytes table;
  for (const auto& [hash, index] : indices) {
    put(table, hash, 8);
    put(table, bytes.size(), 8);
    put(table, index.size(), 8);
    bytes.insert(bytes.end(), index.begin(), index.end());
  }
  const uint64_t begin = bytes.size();
  std::memcpy(bytes.data() + 24, &begin, sizeof begin);
  bytes.insert(bytes.end(), table.begin(), table.end());
  return bytes;
}

TEST(a_seek_file_finds_by_content) {
  std::vector<std::pair<uint64_t, Bytes>> indices;
  Random random(8);
  for (uint32_t i = 0; i < 100; ++i) indices.push_back({random.next(), Bytes(i + 1, uint8_t(i))});
  indices.push_back({0, {7}});
  indices.push_back({UINT64_MAX, {8}});
  const Bytes first = seek_file({indices.begin(), indices.begin() + 50});
  const Bytes second = seek_file({indices.begin() + 50, indices.end()});
  const SeekFiles files({{first.data(), first.size()}, {second.data(), second.size()}});
  EXPECT_EQ(files.count(), 102u);
  Bytes found;
  for (const auto& [hash, index] : indices) {
    files.find(hash, found);
    EXPECT(found == index);
    if (hash == UINT64_MAX) continue;
    files.find(hash + 1, found);
    EXPECT(found.empty());
  }
}

TEST(nothing_is_found_in_a_seek_file_that_was_cut_off) {
  const auto body = [] {
    std::vector<std::pair<uint64_t, Bytes>> indices;
    for (uint64_t i = 0; i < 400; ++i) indices.push_back({i, Bytes(100, static_cast<uint8_t>(i))});
    const Bytes content = seek_file(indices);
    const testing::MappedFile file(content);
    const SeekFiles files({{file.data(), content.size()}});
    Bytes found;
    files.find(77, found);
    EXPECT(found == Bytes(100, 77));
    for (const size_t size : {content.size() - 5000, size_t{4096}, size_t{0}}) {
      file.cut(size);
      for (uint64_t hash = 0; hash < 400; ++hash) {
        files.find(hash, found);
        EXPECT(found.empty() || found == Bytes(100, static_cast<uint8_t>(hash)));
      }
      EXPECT(size > 4096 || found.empty());
      EXPECT_EQ(files.count(), 400u);
    }
    EXPECT_THROW(SeekFiles({{file.data(), content.size()}}), InvalidArgument, "seek indices");
  };
  EXPECT_EQ(testing::in_forked_child(body).exit_code, 0);
}

TEST(a_damaged_seek_file_is_refused_or_finds_nothing) {
  const Bytes good = seek_file({{5, {1, 2, 3}}, {9, {4}}});
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THROW(SeekFiles({{cut.data(), cut.size()}}), InvalidArgument, "seek indices");
  }
  Random random(9);
  for (int i = 0; i < 2000; ++i) {
    Bytes changed = good;
    changed[random.below(static_cast<uint32_t>(good.size()))] ^=
        static_cast<uint8_t>(1u << random.below(8));
    try {
      const SeekFiles files({{changed.data(), changed.size()}});
      for (const uint64_t hash : {uint64_t{5}, uint64_t{9}}) {
        Bytes found;
        files.find(hash, found);
        EXPECT(found.size() < 4096);
      }
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
