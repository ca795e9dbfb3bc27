#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz_loop.h"
#include "source/tar.h"
#include "tar_samples.h"

// Any tar, and any bytes. A whole one has the members that were written. Of a damaged one the walk
// gives only what lies within it, and ends.
// "Decoded" are those in which the walk came to the end.

namespace {

using namespace fastloader;
using testing::kTarBlock;
using testing::Random;

std::vector<TarMember> expected;
bool whole;

std::vector<uint8_t> make(Random& random) {
  testing::TarWriter tar = testing::random_tar(random);
  expected = tar.members;
  whole = random.chance(10);
  if (whole) return tar.bytes;
  if (random.chance(20) || tar.headers.empty()) {
    fuzz::damage(tar.bytes, random);
    return tar.bytes;
  }
  for (uint32_t n = random.between(1, 3); n > 0; --n) {
    const size_t at = tar.headers[random.below(static_cast<uint32_t>(tar.headers.size()))];
    uint8_t* const header = tar.bytes.data() + at;
    switch (random.below(4)) {
      case 0: {  // the size, in octal digits or in binary
        for (size_t i = 124; i < 136; ++i) {
          header[i] = random.chance(70) ? static_cast<uint8_t>('0' + random.below(9))
                                        : static_cast<uint8_t>(random.below(256));
        }
        if (random.chance(30)) std::memset(header + 124, 0, 8 + random.below(3));
        if (random.chance(30)) header[124] = 0x80;
        break;
      }
      case 1:
        header[156] = static_cast<uint8_t>("01234567LKxXgSV\0"[random.below(16)]);
        break;
      case 2:
        header[random.below(kTarBlock)] = static_cast<uint8_t>(random.below(256));
        break;
      default:  // what is behind it, which may be an extended header's
        if (at + kTarBlock < tar.bytes.size()) {
          header[kTarBlock + random.below(64)] = static_cast<uint8_t>(random.below(256));
        }
    }
    testing::seal_tar_header(header);
  }
  if (random.chance(20)) tar.bytes.resize(random.below(static_cast<uint32_t>(tar.bytes.size())));
  return tar.bytes;
}

bool same(const TarMember& a, const TarMember& b) {
  return a.offset == b.offset && a.size == b.size && a.name == b.name;
}

bool check(const std::vector<uint8_t>& bytes, Random&) {
  const std::vector<uint8_t> exact(bytes);  // so that a step beyond it is seen
  std::vector<TarMember> found;
  try {
    found = read_tar(exact.data(), exact.size());
  } catch (const SourceError&) {
    if (whole) fuzz::give_up("tar_fuzz: a whole tar is refused");
    return false;
  }
  uint64_t end = 0;
  for (const TarMember& member : found) {
    if (member.offset < end + kTarBlock || member.offset > exact.size() ||
        member.size > exact.size() - member.offset) {
      fuzz::give_up("tar_fuzz: a member lies outside of the tar, or over another");
    }
    end = member.offset + member.size;
  }
  if (whole && !std::equal(found.begin(), found.end(), expected.begin(), expected.end(), same)) {
    fuzz::give_up("tar_fuzz: other members than were written");
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) { return fuzz::run(argc, argv, make, check); }
