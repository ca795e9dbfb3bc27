#include "source/memory_source.h"

#include <sys/mman.h>
#include <unistd.h>

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

void will_need(uint64_t address, uint64_t bytes) {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = address / page * page;
  // Advice: where the system does not take it, the pages come when they are touched.
  (void)madvise(reinterpret_cast<void*>(begin), address + bytes - begin, MADV_WILLNEED);
}

}  // namespace fastloader
