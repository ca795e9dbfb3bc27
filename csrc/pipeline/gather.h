#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastloader {

/// Rows of one array and the memory of a batch they are copied to, row by row, without gaps.
struct GatherLeaf {
  const std::byte* source = nullptr;
  size_t row_bytes = 0;  ///< 0 copies nothing
  size_t row_step = 0;   ///< bytes from one row to the next; 0 for an expanded array
  std::byte* destination = nullptr;
  size_t list = 0;      ///< which of the batch's lists of rows it takes
  bool mapped = false;  ///< whether a file is mapped to the source
};

/// Returns the rows that a sampler's indices mean in an array of `rows` rows, through `map` if
/// there is one (a Subset). Negative indices and map entries count from the end, as in Python.
/// Throws std::out_of_range with the first index that means no row.
std::vector<uint64_t> resolve_rows(const int64_t* indices, size_t count, const int64_t* map,
                                   size_t map_size, uint64_t rows);

/// Copies rows[begin, end) of the leaf to their places. A shuffled gather waits for memory, not for
/// the processor, so rows are asked for well before they are copied. Returns which of the rows
/// could not be read, as after their file was cut off: `end` if all could.
size_t gather_rows(const GatherLeaf& leaf, const uint64_t* rows, size_t begin, size_t end);

}  // namespace fastloader
