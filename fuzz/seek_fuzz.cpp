#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/xxh3.h"
#include "fuzz_loop.h"
#include "image/dispatch.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/seek/writer.h"
#include "jpeg_compare.h"
#include "jpeg_mutate.h"

// Any seek index of any sequential JPEG. With the index that belongs to a file, and with one that
// was changed afterwards, a region has the pixels of libjpeg's whole decode. With one that was
// forged, right checksums and all, the decoder reads nothing else, and ends in time. The input is
// the index, and the file that it is of: one of so many that follow from their number, since making
// a file takes longer than what is asked of it.
// "Decoded" are those of which a region was decoded with the index, or without it because it was
// seen to be wrong.

namespace {

using namespace fastloader;
using fuzz::Bytes;
using testing::Random;

enum class Kind : uint8_t { kRight, kChanged, kForged };

constexpr size_t kHashAt = 16;  // in an index: the hash of the file
constexpr uint32_t kFiles = 4096;

/// A file that has an index.
struct Indexed {
  Bytes file;
  std::optional<testing::PlainJpeg> plain;
};

/// The file of that number, made when it is asked for first.
const Indexed& indexed(uint32_t number) {
  static std::vector<Indexed> all(kFiles);
  Indexed& one = all[number];
  Random random(number);
  while (one.file.empty()) {
    Bytes bytes = fuzz::make_odd_seed(random.next()).bytes;
    if (make_seek_index(bytes.data(), bytes.size(), 1).empty()) continue;
    one.file = std::move(bytes);
    one.plain.emplace(one.file.data(), one.file.size(), false, JpegOptions().pixel_limit);
  }
  return one;
}

const Indexed* of;  // the file that the index was made for
Bytes forged;  // that file, or its like with another scan, which the index then claims to be of
Bytes right;   // the index that the writer makes
Kind kind;

void put_hash(Bytes& index, size_t at, uint64_t hash) {
  if (index.size() >= at + sizeof hash) std::memcpy(index.data() + at, &hash, sizeof hash);
}

/// Makes the checksums those of the forged file and this index.
void forge(Bytes& index) {
  put_hash(index, kHashAt, xxh3(forged.data(), forged.size()));
  if (index.size() < kSeekChecksumBytes) return;
  const size_t checked = index.size() - kSeekChecksumBytes;
  put_hash(index, checked, xxh3(index.data(), checked));
}

Bytes make(Random& random) {
  of = &indexed(random.below(kFiles));
  Bytes index;
  while (index.empty()) {
    index = make_seek_index(of->file.data(), of->file.size(), random.between(1, 9));
  }
  right = index;
  kind = static_cast<Kind>(random.below(3));
  if (kind == Kind::kRight) return index;
  // Sizes stay most of the time: what has another size is not looked at.
  if (random.chance(10)) {
    fuzz::damage(index, random);
  } else {
    for (uint32_t n = random.between(1, 4); n > 0; --n) {
      const auto size = static_cast<uint32_t>(index.size());
      const size_t at = random.chance(10) ? random.below(kSeekHeaderBytes) : random.below(size);
      index[at] ^= static_cast<uint8_t>(1u << random.below(8));
    }
  }
  if (kind == Kind::kForged) {
    forged = of->file;
    if (random.chance(30)) fuzz::damage_scans(forged, random);
    forge(index);
  }
  return index;
}

/// A decoder for each instruction set that there is.
std::vector<std::unique_ptr<JpegDecoder>> make_decoders() {
  std::vector<std::unique_ptr<JpegDecoder>> all;
  for (const std::string& name : available_isa_names()) {
    all.push_back(std::make_unique<JpegDecoder>(isa_by_name(name)));
  }
  return all;
}

/// Of which the index was used, or seen to be wrong.
uint64_t used = 0;
uint64_t unfit = 0;

/// A region of the forged file, whose picture may have another size than that of the file it was.
void decode_forged(JpegDecoder& decoder, const JpegOptions& options, Random& random) {
  try {
    const JpegHeader header = decoder.open(forged.data(), forged.size(), options);
    decoder.begin(testing::random_region(random, header.width, header.height));
    while (decoder.rows_left() > 0) decoder.read_row();
  } catch (const DecodeError&) {
  }
}

bool check(const Bytes& bytes, Random& random) {
  static const auto decoders = make_decoders();
  const Bytes index(bytes);  // of exactly that size, so that a step beyond it is seen
  JpegOptions options;
  options.seek_index = {index.data(), index.size()};
  const testing::PlainJpeg& plain = *of->plain;
  bool ours = false;
  for (int i = 0; i < 3; ++i) {
    JpegDecoder& decoder = *decoders[random.below(static_cast<uint32_t>(decoders.size()))];
    if (kind == Kind::kForged) {
      decode_forged(decoder, options, random);
    } else {
      const JpegRegion region = testing::random_region(random, plain.width, plain.height);
      const testing::Compared compared = testing::compare_region(
          decoder, of->file.data(), of->file.size(), options, region, plain);
      if (!compared.difference.empty()) fuzz::give_up(compared.difference.c_str());
    }
    const SeekUse use = decoder.seek_use();
    if (kind == Kind::kRight && use == SeekUse::kUnfit) fuzz::give_up("a right index is unfit");
    // Two changes may undo each other.
    if (kind == Kind::kChanged && use == SeekUse::kUsed && index != right) {
      fuzz::give_up("a changed index was used");
    }
    used += use == SeekUse::kUsed;
    unfit += use == SeekUse::kUnfit;
    ours |= use != SeekUse::kNone;
  }
  return ours;
}

}  // namespace

int main(int argc, char** argv) {
  const int status = fuzz::run(argc, argv, make, check);
  std::printf("%llu regions with the index, %llu with one that was seen to be wrong\n",
              static_cast<unsigned long long>(used), static_cast<unsigned long long>(unfit));
  return status;
}
