#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/decoder.h"
#include "jpeg_compare.h"

// Progressive files made bit by bit: what the decoder of our own takes for damage, and the last
// thing before it that it does not. libjpeg-turbo's pixels come out in either case.

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

/// A scan of grey blocks. Each symbol's code is its number, in 4 bits.
struct Scan {
  int first = 0;
  int last = 0;
  int high = 0;
  int low = 0;
  std::vector<int> symbols;
  std::string bits;  ///< "0", "1", "|" for a restart; a blank means nothing
  int restart = 0;
};

void put_segment(Bytes& jpeg, int marker, const std::vector<int>& body) {
  const size_t length = body.size() + 2;
  for (const size_t byte : {size_t{0xff}, static_cast<size_t>(marker), length >> 8, length & 255}) {
    jpeg.push_back(static_cast<uint8_t>(byte));
  }
  for (const int byte : body) jpeg.push_back(static_cast<uint8_t>(byte));
}

void put_bits(Bytes& jpeg, const std::string& bits) {
  unsigned byte = 0;
  unsigned count = 0;
  uint8_t restart = 0xd0;
  const auto put = [&](unsigned bit) {
    byte = byte << 1 | bit;
    if (++count < 8) return;
    jpeg.push_back(static_cast<uint8_t>(byte));
    if (byte == 0xff) jpeg.push_back(0);
    byte = count = 0;
  };
  for (const char bit : bits) {
    if (bit == '0' || bit == '1') put(bit == '1' ? 1 : 0);
    if (bit != '|') continue;
    while (count > 0) put(1);
    jpeg.push_back(0xff);
    jpeg.push_back(restart++);
  }
  while (count > 0) put(1);
}

/// So many blocks side by side.
Bytes make(int blocks, const std::vector<Scan>& scans) {
  Bytes jpeg{0xff, 0xd8};
  put_segment(jpeg, 0xe0, {'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0});
  std::vector<int> factors(65, 1);
  factors[0] = 0;
  put_segment(jpeg, 0xdb, factors);
  put_segment(jpeg, 0xc2, {8, 0, 8, blocks * 8 / 256, blocks * 8 % 256, 1, 1, 0x11, 0});
  for (const Scan& scan : scans) {
    if (!scan.symbols.empty()) {
      std::vector<int> table(17, 0);
      table[0] = scan.first > 0 ? 0x10 : 0;
      table[4] = static_cast<int>(scan.symbols.size());
      table.insert(table.end(), scan.symbols.begin(), scan.symbols.end());
      put_segment(jpeg, 0xc4, table);
    }
    put_segment(jpeg, 0xdd, {0, scan.restart});
    put_segment(jpeg, 0xda, {1, 1, 0, scan.first, scan.last, scan.high << 4 | scan.low});
    put_bits(jpeg, scan.bits);
  }
  jpeg.push_back(0xff);
  jpeg.push_back(0xd9);
  return jpeg;
}

std::string times(int count, const std::string& bits) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bits;
  return all;
}

/// What each implementation makes of the whole picture: "none" if it decodes it, or why not. The
/// last block by itself may not be touched by the damage.
std::string verdict(const Bytes& jpeg) {
  const PlainJpeg plain(jpeg.data(), jpeg.size(), false, kPillowPixelLimit);
  EXPECT(plain.end() == PlainJpeg::End::kFine);
  std::string verdict;
  for (const std::string& name : available_isa_names()) {
    JpegDecoder decoder(isa_by_name(name));
    for (const uint32_t left : {0u, plain.width - 8}) {
      const Compared compared = compare_region(decoder, jpeg.data(), jpeg.size(), {},
                                               {left, 0, plain.width - left, 8}, plain);
      EXPECT_EQ(compared.difference, "");
      EXPECT(compared.decoded);
      if (left > 0) continue;
      if (verdict.empty()) verdict = name_of(decoder.refusal());
      EXPECT_EQ(name_of(decoder.refusal()), verdict);
    }
  }
  return verdict;
}

const Scan kGreyFirst{0, 0, 0, 0, {0}, times(6, "0000"), 0};

TEST(runs_of_ended_bands) {
  const auto ends = [](const std::string& bits, int restart = 0) {
    // The symbols are for 1, 2 or 3, and 4 to 7 blocks.
    return verdict(make(6, {kGreyFirst, {1, 63, 0, 0, {0, 0x10, 0x20}, bits, restart}}));
  };
  EXPECT_EQ(ends("0010 10"), "none");
  EXPECT_EQ(ends("0001 0 0010 00"), "none");
  EXPECT_EQ(ends(times(6, "0000")), "none");
  EXPECT_EQ(ends("0010 11"), "none");         // for one block more than there are
  EXPECT_EQ(ends("0001 1"), "damage");        // for too few
  EXPECT_EQ(ends("0011 0010 10"), "damage");  // no symbol
  EXPECT_EQ(ends("0010 00 | 0001 0", 4), "none");
  EXPECT_EQ(ends("0010 01 | 0001 0", 4), "damage");
  EXPECT_EQ(ends("0010 00 | 0001 1", 4), "none");
  // Bits that nobody takes: those that fill up the byte, and a whole one.
  EXPECT_EQ(ends("0010 00 11 | 0001 0", 4), "none");
  EXPECT_EQ(ends("0010 00 11 00000000 | 0001 0", 4), "damage");
}

TEST(places_of_a_band) {
  const auto places = [](const std::string& bits, int last = 63) {
    // 3 zeros and a coefficient; 16 zeros; a coefficient of 2 bits; the end.
    const std::vector<int> symbols{0x31, 0xf0, 0x02, 0x00};
    std::vector<Scan> scans{kGreyFirst, {1, last, 0, 0, symbols, bits + times(5, "0011"), 0}};
    if (last < 63) scans.push_back({last + 1, 63, 0, 0, {0x00}, times(6, "0000"), 0});
    return verdict(make(6, scans));
  };
  EXPECT_EQ(places("0000 1 0000 0 0010 11 0011"), "none");
  EXPECT_EQ(places("0000 1 0000 1", 8), "none");  // up to the band's last place
  EXPECT_EQ(places("0010 01 0000 1 0000 0", 8), "damage");
  EXPECT_EQ(places("0001 0001 0010 10 0011"), "none");
  EXPECT_EQ(places("0001 0001 0001 " + times(15, "0010 00")), "none");
  EXPECT_EQ(places("0001 0001 0001 0001 0011"), "damage");
  EXPECT_EQ(places("0001", 16), "none");
  EXPECT_EQ(places("0001", 15), "damage");
}

TEST(numbers_that_do_not_fit) {
  const auto magnitude = [](int bits, int low) {
    // One coefficient, which is followed by its lower bits. They are 0, and the other blocks' bands
    // end.
    const std::string ends = times(5, "0001");
    std::vector<Scan> scans{kGreyFirst};
    scans.push_back({1, 63, 0, low, {bits, 0}, "0000" + times(bits, "1") + "0001" + ends, 0});
    for (int high = low; high > 0; --high) {
      scans.push_back({1, 63, high, high - 1, {0, 0x50}, "0000 0" + times(5, "0000"), 0});
    }
    return verdict(make(6, scans));
  };
  EXPECT_EQ(magnitude(10, 0), "none");
  EXPECT_EQ(magnitude(14, 0), "none");
  EXPECT_EQ(magnitude(15, 0), "damage");
  EXPECT_EQ(magnitude(12, 2), "none");
  EXPECT_EQ(magnitude(13, 2), "damage");
}

TEST(refinements) {
  // Coefficients 1, 3 and 5 are there already, of the first block.
  const Scan before{1, 8, 0, 1, {0x01, 0x11, 0x00}, "0000 1 0001 0 0001 1 0010" + times(5, "0010"),
                    0};
  const Scan others{9, 63, 0, 0, {0x00}, times(6, "0000"), 0};
  const auto refined = [&](const std::string& bits) {
    // A new coefficient in place 0, 1, or 3 of the zeros; one of 2 bits; the end.
    const Scan refinement{1, 8, 1, 0, {0x01, 0x11, 0x31, 0x02, 0x00}, bits + times(5, "0100"), 0};
    return verdict(make(6, {kGreyFirst, before, others, refinement}));
  };
  EXPECT_EQ(refined("0100 101"), "none");                 // a further bit of each
  EXPECT_EQ(refined("0000 1 1 0100 01"), "none");         // a new one in 2, behind 1
  EXPECT_EQ(refined("0001 0 11 0001 1 1 0100"), "none");  // in 4 and 7
  EXPECT_EQ(refined("0010 1 111 0000 1"), "none");        // in 7 and in the last place
  EXPECT_EQ(refined("0001 0 11 0010 1"), "damage");       // there are not so many zeros
  EXPECT_EQ(refined("0011 1 1 0100 01"), "damage");       // of two bits
}

TEST(further_bits_of_first_coefficients) {
  const auto refined = [](const std::string& bits, int restart = 0) {
    return verdict(make(18, {{0, 0, 0, 1, {0, 3}, "0001 111" + times(17, "0000"), 0},
                             {1, 63, 0, 0, {0x40}, "0000 0010", 0},
                             {0, 0, 1, 0, {}, bits, restart}}));
  };
  EXPECT_EQ(refined(times(9, "01")), "none");
  EXPECT_EQ(refined(times(8, "01")), "damage");
  EXPECT_EQ(refined(times(5, "01") + "|" + times(4, "10"), 10), "none");
  EXPECT_EQ(refined(times(4, "01") + "|" + times(4, "10"), 10), "damage");
  EXPECT_EQ(refined(times(5, "01") + "|", 10), "damage");
}

/// Far from any memory, unless somebody asks.
TEST(many_bits_that_are_missing) {
  std::string full;
  for (int k = 1; k < 64; ++k) full += "0000 1";
  constexpr int kBlocks = 100;
  const std::vector<Scan> scans{{0, 0, 0, 0, {0}, times(kBlocks, "0000"), 0},
                                {1, 63, 0, 1, {0x01, 0x00}, times(kBlocks, full), 0},
                                {1, 63, 1, 0, {0x60}, "0000 100100", 0}};
  EXPECT_EQ(verdict(make(kBlocks, scans)), "damage");
  std::vector<Scan> complete = scans;
  complete.back().bits += times(63 * kBlocks, "1");
  EXPECT_EQ(verdict(make(kBlocks, complete)), "none");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
