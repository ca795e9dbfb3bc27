#include "source/tar.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "child_process.h"
#include "mapped_file.h"
#include "tar_samples.h"

namespace fastloader {
namespace {

using namespace testing;

/// What the walk says of bytes that lie in memory of exactly that size.
std::vector<TarMember> walk(const std::vector<uint8_t>& bytes, size_t size) {
  const std::vector<uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<long>(size));
  return read_tar(exact.data(), exact.size());
}

std::string refusal(const std::vector<uint8_t>& bytes, size_t size) {
  try {
    walk(bytes, size);
  } catch (const SourceError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const TarWriter& tar) { return refusal(tar.bytes, tar.bytes.size()); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_members(const TarWriter& tar) {
  const std::vector<TarMember> found = walk(tar.bytes, tar.bytes.size());
  EXPECT_EQ(found.size(), tar.members.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, tar.members[i].name);
    EXPECT_EQ(found[i].offset, tar.members[i].offset);
    EXPECT_EQ(found[i].size, tar.members[i].size);
  }
}

TEST(members_of_tars_in_all_formats) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    expect_members(random_tar(random));
  }
}

TEST(a_long_name_is_of_the_next_member_only) {
  TarWriter tar;
  const std::string longer(300, 'n');
  tar.put("././@LongLink", 'L', longer + '\0');
  tar.file("short", "a", longer);
  tar.file("short", "b");
  tar.put("pax", 'x', TarWriter::record("path", "other"));
  tar.put("folder", '5', "");
  tar.file("last", "c");
  tar.end();
  expect_members(tar);
}

TEST(a_pax_size_goes_before_that_of_the_header) {
  TarWriter tar;
  tar.put("pax", 'x', TarWriter::record("size", "700"));
  tar.put("a", '0', std::string(700, 'x'));
  std::snprintf(reinterpret_cast<char*>(tar.bytes.data() + tar.headers[1] + 124), 12, "%011o", 0u);
  seal_tar_header(tar.bytes.data() + tar.headers[1]);
  tar.expect("a", std::string(700, 'x'));
  tar.file("b", "y");
  tar.end();
  expect_members(tar);
}

TEST(a_size_in_binary) {
  TarWriter tar;
  tar.file("a", std::string(700, 'x'));
  tar.end();
  uint8_t* const size = tar.bytes.data() + 124;
  std::memset(size, 0, 12);
  size[0] = 0x80;
  size[10] = 700 >> 8;
  size[11] = 700 & 255;
  seal_tar_header(tar.bytes.data());
  expect_members(tar);
  for (const uint8_t first : {uint8_t{0xff}, uint8_t{0x81}}) {  // negative, and too large
    size[0] = first;
    seal_tar_header(tar.bytes.data());
    EXPECT(contains(refusal(tar), "at byte 0: a header is damaged: its size is no number"));
  }
  std::memset(size, 0xff, 12);
  size[0] = 0x80;
  seal_tar_header(tar.bytes.data());
  EXPECT(contains(refusal(tar), "its size is no number"));
}

TEST(every_length_is_whole_or_refused) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const TarWriter tar = random_tar(random);
    // From the first block of zeros on, the tar is whole.
    const size_t whole = tar.bytes.size() - kTarBlock;
    for (size_t size = 0; size < whole; size += size % kTarBlock == 511 ? 1 : 73) {
      const std::string why = refusal(tar.bytes, size);
      EXPECT(contains(why, "cut off"));
      EXPECT(contains(why, "at byte "));
    }
    EXPECT_EQ(refusal(tar.bytes, whole), std::string());
  }
}

TEST(damage_is_told_with_its_place) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    TarWriter tar = random_tar(random);
    if (tar.headers.empty()) continue;
    const size_t header = tar.headers[random.below(static_cast<uint32_t>(tar.headers.size()))];
    tar.bytes[header + random.below(100)] ^= 0x11;
    const std::string at = "at byte " + std::to_string(header) + ": ";
    const std::string what = header == 0 ? "no tar begins so" : "a header is damaged";
    EXPECT(contains(refusal(tar), at + what));
  }
}

TEST(what_a_tar_of_pictures_has_not) {
  TarWriter sparse;
  sparse.put("a", 'S', "x");
  sparse.end();
  EXPECT(contains(refusal(sparse), "at byte 0: sparse files are not supported"));
  TarWriter also_sparse;
  also_sparse.put("pax", 'x', TarWriter::record("GNU.sparse.major", "1"));
  also_sparse.file("a", "x");
  also_sparse.end();
  EXPECT(contains(refusal(also_sparse), "sparse files are not supported"));
  TarWriter empty;
  EXPECT(contains(refusal(empty), "cut off"));
  for (const char* records : {"x", "5", "8 path=a\n", "11 path=abc", "99999999999999999999 a=b\n",
                              "7 path\n", "0 a=b\n", "13 size=12a4\n"}) {
    TarWriter tar;
    tar.put("pax", 'x', records);
    tar.file("a", "x");
    tar.end();
    EXPECT(contains(refusal(tar), "at byte 0: an extended header is damaged"));
  }
}

TEST(a_tar_that_is_cut_off_while_it_is_mapped_is_refused) {
  const auto body = [] {
    TarWriter tar;
    for (int i = 0; i < 20; ++i) tar.file(std::to_string(i) + ".jpg", std::string(1000, 'x'));
    tar.end();
    const MappedFile file(tar.bytes);
    EXPECT_EQ(read_tar(file.data(), tar.bytes.size()).size(), 20u);
    file.cut(4096);
    EXPECT_THROW(read_tar(file.data(), tar.bytes.size()), SourceError,
                 "was cut off while it was read");
  };
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
