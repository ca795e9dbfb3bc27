#include "image/jpeg/pillow_header.h"

#include <string>
#include <vector>

#include "check.h"
#include "random.h"

// No header, however it ends, leads past its bytes, which the sanitizers see. What Pillow refuses
// is put to the test with Pillow, in tests/python/sources/images/test_image_headers.py.

namespace fastloader {
namespace {

using namespace testing;
using namespace std::string_literals;

/// In memory of exactly that size.
const char* look_at(const std::string& header) {
  const std::vector<uint8_t> bytes(header.begin(), header.end());
  return stumbling_block_of_pillow(bytes.data(), bytes.size());
}

std::string segment(uint8_t marker, const std::string& body) {
  const size_t length = body.size() + 2;
  return "\xff"s + static_cast<char>(marker) + static_cast<char>(length >> 8) +
         static_cast<char>(length & 0xff) + body;
}

const std::string kBeginning = "\xff\xd8"s;
const std::string kScan = "\xff\xda\x00\x02"s;
const std::string kExif = "Exif\0\0MM\0*\0\0\0\x08"s;
const std::string kPhotoshop = "Photoshop 3.0\0"s;

TEST(names_what_it_sees_before_the_first_scan) {
  const std::string cut = segment(0xe0, "JFIF\0\1"s);
  EXPECT(look_at(kBeginning + kScan) == nullptr);
  EXPECT_EQ(std::string(look_at(kBeginning + cut + kScan)), "a JFIF segment without its version");
  EXPECT(look_at(kBeginning + kScan + cut) == nullptr);
  EXPECT_EQ(std::string(look_at(kBeginning + "junk\xff\xff\xff\xff\x01"s + kScan)),
            "a marker that it does not know");
}

TEST(bytes_may_end_anywhere) {
  const std::string entries = "\0\2\1\x28\0\3\0\0\0\1\0\2\0\0\1\x1a\0\1\0\0\0\1\5\0\0\0"s;
  const std::string header = kBeginning +
                             segment(0xed, kPhotoshop + "8BIM\4\4\0\0\0\0\0\2xx8BIM\4\4"s) +
                             segment(0xe2, "ICC_PROFILE\0\1\1"s) + segment(0xe1, kExif + entries);
  for (size_t size = 0; size <= header.size(); ++size) look_at(header.substr(0, size));
  for (size_t size = 0; size <= entries.size(); ++size) {
    look_at(kBeginning + segment(0xe1, kExif + entries.substr(0, size)) + kScan);
  }
}

TEST(segments_may_say_anything) {
  Random random(21);
  const std::string beginnings[] = {"JFIF", "Adobe",      "ICC_PROFILE\0"s, kPhotoshop + "8BIM"s,
                                    kExif,  "Exif\0\0II"s};
  const uint8_t markers[] = {0xe0, 0xee, 0xe2, 0xed, 0xe1, 0xe1};
  int named = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t kind = random.below(6);
    std::string body = beginnings[kind];
    for (uint32_t left = random.below(40); left > 0; --left) {
      body += static_cast<char>(random.chance(50) ? random.below(4) : random.below(256));
    }
    std::string header = kBeginning + segment(markers[kind], body);
    if (random.chance(30)) header[random.between(2, 5)] = static_cast<char>(random.below(256));
    if (look_at(header + kScan) != nullptr) ++named;
  }
  EXPECT(named > 100 && named < 19900);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
