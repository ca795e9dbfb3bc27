#include "pipeline/gather.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/mapped_memory.h"

namespace fastloader {
namespace {

constexpr size_t kLine = 64;
/// Bytes asked for ahead of the copy: what a core keeps in flight, and not so much that it is
/// evicted from the first-level cache again.
constexpr size_t kAhead = 4096;
/// From here on the processor's own prefetcher does better within a row.
constexpr size_t kLongRow = 4096;

[[noreturn]] void refuse(int64_t index, uint64_t size) {
  throw std::out_of_range("index " + std::to_string(index) + " is out of range for " +
                          std::to_string(size) + " rows");
}

uint64_t wrapped(int64_t index, uint64_t size) {
  const uint64_t found =
      index < 0 ? static_cast<uint64_t>(index) + size : static_cast<uint64_t>(index);
  if (found >= size) refuse(index, size);
  return found;
}

void ask_for(const std::byte* row, size_t bytes) {
  const std::byte* const end = row + bytes;
  for (const std::byte* line = row; line < end; line += kLine) __builtin_prefetch(line, 0, 0);
}

/// `kBytes` known to the compiler makes the copy of a short row a few moves.
template <size_t kBytes>
void gather_fixed(const GatherLeaf& leaf, const uint64_t* rows, size_t begin, size_t end) {
  constexpr size_t kRowsAhead = 32;
  std::byte* out = leaf.destination + begin * kBytes;
  for (size_t i = begin; i < end; ++i, out += kBytes) {
    if (i + kRowsAhead < end) {
      __builtin_prefetch(leaf.source + rows[i + kRowsAhead] * leaf.row_step, 0, 0);
    }
    std::memcpy(out, leaf.source + rows[i] * leaf.row_step, kBytes);
  }
}

void gather_any(const GatherLeaf& leaf, const uint64_t* rows, size_t begin, size_t end) {
  const size_t asked = std::min(leaf.row_bytes, kLongRow);
  const size_t ahead = std::clamp<size_t>(kAhead / asked, 1, 32);
  for (size_t i = begin; i < std::min(begin + ahead, end); ++i) {
    ask_for(leaf.source + rows[i] * leaf.row_step, asked);
  }
  std::byte* out = leaf.destination + begin * leaf.row_bytes;
  for (size_t i = begin; i < end; ++i, out += leaf.row_bytes) {
    if (i + ahead < end) ask_for(leaf.source + rows[i + ahead] * leaf.row_step, asked);
    std::memcpy(out, leaf.source + rows[i] * leaf.row_step, leaf.row_bytes);
  }
}

size_t gather_mapped(const GatherLeaf& leaf, const uint64_t* rows, size_t begin, size_t end) {
  std::array<iovec, 256> pieces;
  while (begin < end) {
    const size_t some = std::min(end - begin, pieces.size());
    for (size_t i = 0; i < some; ++i) {
      auto* const row = const_cast<std::byte*>(leaf.source + rows[begin + i] * leaf.row_step);
      pieces[i] = {row, leaf.row_bytes};
    }
    const size_t copied =
        copy_mapped_pieces(leaf.destination + begin * leaf.row_bytes, pieces.data(), some);
    if (copied < some * leaf.row_bytes) return begin + copied / leaf.row_bytes;
    begin += some;
  }
  return end;
}

}  // namespace

std::vector<uint64_t> resolve_rows(const int64_t* indices, size_t count, const int64_t* map,
                                   size_t map_size, uint64_t rows) {
  std::vector<uint64_t> found(count);
  if (map == nullptr) {
    for (size_t i = 0; i < count; ++i) found[i] = wrapped(indices[i], rows);
  } else {
    for (size_t i = 0; i < count; ++i) found[i] = wrapped(map[wrapped(indices[i], map_size)], rows);
  }
  return found;
}

size_t gather_rows(const GatherLeaf& leaf, const uint64_t* rows, size_t begin, size_t end) {
  if (leaf.row_bytes == 0) return end;
  if (leaf.mapped) return gather_mapped(leaf, rows, begin, end);
  switch (leaf.row_bytes) {
    case 1:
      gather_fixed<1>(leaf, rows, begin, end);
      break;
    case 2:
      gather_fixed<2>(leaf, rows, begin, end);
      break;
    case 4:
      gather_fixed<4>(leaf, rows, begin, end);
      break;
    case 8:
      gather_fixed<8>(leaf, rows, begin, end);
      break;
    case 16:
      gather_fixed<16>(leaf, rows, begin, end);
      break;
    default:
      gather_any(leaf, rows, begin, end);
  }
  return end;
}

}  // namespace fastloader
