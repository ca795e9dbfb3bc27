#include "source/memory_source.h"

#include "base/error.h"

namespace fastloader {

std::optional<SampleBytes> MemorySource::view(uint64_t index) const {
  if (index >= count_) {
    throw InvalidArgument("sample " + std::to_string(index) + " of " + std::to_string(count_));
  }
  if (addresses_[index] == 0)
    throw SourceError("cannot read " + name(index) + ": it was not found");
  return SampleBytes{reinterpret_cast<const uint8_t*>(addresses_[index]), sizes_[index]};
}

void MemorySource::read(uint64_t index, std::vector<uint8_t>& bytes) const {
  const SampleBytes sample = *view(index);
  bytes.assign(sample.data, sample.data + sample.size);
}

}  // namespace fastloader
