#include "source/memory_source.h"

#include "base/error.h"

namespace fastloader {

std::optional<SampleBytes> MemorySource::view(uint64_t index) const {
  if (index >= count_) {
    throw InvalidArgument("sample " + std::to_string(index) + " of " + std::to_string(count_));
  }
  if (samples_.addresses[index] == 0)
    throw SourceError("cannot read " + name(index) + ": it was not found");
  SampleBytes sample;
  sample.data = reinterpret_cast<const uint8_t*>(samples_.addresses[index]);
  sample.size = samples_.sizes[index];
  if (seek_indices_.addresses != nullptr) {
    sample.seek_index = reinterpret_cast<const uint8_t*>(seek_indices_.addresses[index]);
    sample.seek_index_size = seek_indices_.sizes[index];
  }
  return sample;
}

void MemorySource::read(uint64_t index, std::vector<uint8_t>& bytes) const {
  const SampleBytes sample = *view(index);
  bytes.assign(sample.data, sample.data + sample.size);
}

}  // namespace fastloader
