#include "image/jpeg/seek/file.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/little_endian.h"

namespace fastloader {
namespace {

constexpr char kMagic[] = {'f', 'l', 'j', 'p', 's', 'e', 'e', 'k'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;

/// A row of the table, which is sorted by hash.
struct Row {
  uint64_t hash;
  uint64_t begin;  // of the index, from the beginning of the file
  uint64_t size;
};

}  // namespace

SeekFiles::SeekFiles(const std::vector<SeekBytes>& files) {
  for (const SeekBytes& bytes : files) {
    if (bytes.size < kHeaderBytes || std::memcmp(bytes.data, kMagic, sizeof kMagic) != 0) {
      throw InvalidArgument("not a file of seek indices");
    }
    const auto version = read_little_endian<uint32_t>(bytes.data + 8);
    if (version != kVersion) {
      throw InvalidArgument("a file of seek indices of version " + std::to_string(version) +
                            "; this fastloader reads version " + std::to_string(kVersion));
    }
    const auto count = read_little_endian<uint64_t>(bytes.data + 16);
    const auto table = read_little_endian<uint64_t>(bytes.data + 24);
    if (table < kHeaderBytes || table > bytes.size || (bytes.size - table) % sizeof(Row) != 0 ||
        (bytes.size - table) / sizeof(Row) != count) {
      throw InvalidArgument("a file of seek indices that is cut off or damaged");
    }
    files_.push_back({bytes, bytes.data + table, count});
  }
}

SeekBytes SeekFiles::find(uint64_t hash) const {
  for (const File& file : files_) {
    // The first row whose hash is not smaller.
    uint64_t first = 0;
    for (uint64_t left = file.count; left > 0;) {
      const uint64_t half = left / 2;
      const bool smaller =
          read_little_endian<uint64_t>(file.table + (first + half) * sizeof(Row)) < hash;
      if (smaller) first += half + 1;
      left = smaller ? left - half - 1 : half;
    }
    if (first == file.count) continue;
    const Row row = read_little_endian<Row>(file.table + first * sizeof(Row));
    const auto room = static_cast<uint64_t>(file.table - file.bytes.data);
    if (row.hash == hash && row.begin <= room && row.size <= room - row.begin) {
      return {file.bytes.data + row.begin, row.size};
    }
  }
  return {};
}

uint64_t SeekFiles::count() const {
  return std::accumulate(files_.begin(), files_.end(), uint64_t{0},
                         [](uint64_t sum, const File& file) { return sum + file.count; });
}

}  // namespace fastloader
