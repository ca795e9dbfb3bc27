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

void MemorySource::will_need(uint64_t index) const {
  if (index >= count_ || addresses_[index] == 0) return;
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = addresses_[index] / page * page;
  const uint64_t end = addresses_[index] + sizes_[index];
  // Advice: where the system has none to take, the pages come when they are touched.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace fastloader
