#include "image/jpeg/seek/file.h"

#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/mapped_memory.h"

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
    std::array<uint8_t, kHeaderBytes> header;
    if (bytes.size < kHeaderBytes || !copy_mapped(header.data(), bytes.data, kHeaderBytes) ||
        std::memcmp(header.data(), kMagic, sizeof kMagic) != 0) {
      throw InvalidArgument("not a file of seek indices");
    }
    const auto version = read_little_endian<uint32_t>(header.data() + 8);
    if (version != kVersion) {
      throw InvalidArgument("a file of seek indices of version " + std::to_string(version) +
                            "; this fastloader reads version " + std::to_string(kVersion));
    }
    const auto count = read_little_endian<uint64_t>(header.data() + 16);
    const auto table = read_little_endian<uint64_t>(header.data() + 24);
    if (table < kHeaderBytes || table > bytes.size || (bytes.size - table) % sizeof(Row) != 0 ||
        (bytes.size - table) / sizeof(Row) != count) {
      throw InvalidArgument("a file of seek indices that is cut off or damaged");
    }
    files_.push_back({bytes, bytes.data + table, count});
  }
}

void SeekFiles::File::find(uint64_t hash, std::vector<uint8_t>& index) const {
  std::array<uint8_t, sizeof(Row)> copied;
  // The first row whose hash is not smaller.
  uint64_t first = 0;
  for (uint64_t left = count; left > 0;) {
    const uint64_t half = left / 2;
    if (!copy_mapped(copied.data(), table + (first + half) * sizeof(Row), sizeof(uint64_t))) return;
    const bool smaller = read_little_endian<uint64_t>(copied.data()) < hash;
    if (smaller) first += half + 1;
    left = smaller ? left - half - 1 : half;
  }
  if (first == count || !copy_mapped(copied.data(), table + first * sizeof(Row), sizeof(Row))) {
    return;
  }
  const Row row = read_little_endian<Row>(copied.data());
  const auto room = static_cast<uint64_t>(table - bytes.data);
  if (row.hash != hash || row.begin > room || row.size > room - row.begin) return;
  index.resize(row.size);
  if (!copy_mapped(index.data(), bytes.data + row.begin, row.size)) index.clear();
}

void SeekFiles::find(uint64_t hash, std::vector<uint8_t>& index) const {
  index.clear();
  for (const File& file : files_) {
    if (index.empty()) file.find(hash, index);
  }
}

uint64_t SeekFiles::count() const {
  return std::accumulate(files_.begin(), files_.end(), uint64_t{0},
                         [](uint64_t sum, const File& file) { return sum + file.count; });
}

}  // namespace fastloader
