#include "source/memory_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/mapped_memory.h"

namespace fastloader {
namespace {

/// Bytes that are copied before `look` is asked. Most pictures are smaller.
constexpr size_t kBeginning = size_t{256} << 10;

const std::byte* memory_at(uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

}  // namespace

bool MemorySource::read_if(uint64_t index, std::vector<uint8_t>& bytes, Look look,
                           size_t most) const {
  if (index >= count_) {
    throw InvalidArgument("sample " + std::to_string(index) + " of " + std::to_string(count_));
  }
  const auto fail = [&](const char* why) {
    throw SourceError("cannot read " + name(index) + ": " + why);
  };
  if (samples_.addresses[index] == 0) fail("it was not found");
  const uint64_t size = samples_.sizes[index];
  if (size > kLargestSample) fail("more than 1 GiB");
  if (size > most) return false;
  const std::byte* const from = memory_at(samples_.addresses[index]);
  const size_t first = look == nullptr ? size : std::min<uint64_t>(size, kBeginning);
  const auto copy = [&](size_t begin, size_t end) {
    bytes.resize(end);
    if (!copy_mapped(bytes.data() + begin, from + begin, end - begin)) {
      fail("the file that it is mapped from was cut off, or its disk fails");
    }
  };
  copy(0, first);
  if (first < size && look(bytes.data(), first)) copy(first, size);
  return true;
}

void MemorySource::read_seek_index(uint64_t index, std::vector<uint8_t>& bytes) const {
  bytes.clear();
  if (seek_indices_.addresses == nullptr) return;
  bytes.resize(seek_indices_.sizes[index]);
  if (!copy_mapped(bytes.data(), memory_at(seek_indices_.addresses[index]), bytes.size())) {
    bytes.clear();  // the picture is the same without
  }
}

}  // namespace fastloader
