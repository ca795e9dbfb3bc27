#include "base/heap.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fastloader {
namespace {

#ifdef __GLIBC__
constexpr size_t kSmall = size_t{1} << 20;
// The highest mmap threshold that malloc takes by itself, and that older versions let be set.
constexpr size_t kLeastThreshold = size_t{32} << 20;

bool set_by_user() noexcept {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
                           "MALLOC_MMAP_MAX_"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr &&
         std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos;
}

int threshold(size_t bytes) noexcept {
  return static_cast<int>(std::clamp(bytes, kLeastThreshold, size_t{INT_MAX}));
}
#endif

}  // namespace

void KeptHeap::keep_for(size_t bytes) noexcept {
#ifdef __GLIBC__
  // Not for every batch: sizes of batches differ a little, and one may be the only one of its size.
  if (bytes_ == 0 ? bytes < kSmall : bytes <= bytes_ && bytes >= bytes_ / 4) return;
  if (set_by_user()) return;
  const bool shrinks = bytes < bytes_;
  bytes_ = bytes + bytes / 4;
  // Older versions refuse a threshold beyond their greatest one.
  if (mallopt(M_MMAP_THRESHOLD, threshold(2 * bytes_)) == 0) {
    mallopt(M_MMAP_THRESHOLD, threshold(0));
  }
  mallopt(M_TRIM_THRESHOLD, threshold(4 * bytes_));
  if (shrinks) malloc_trim(0);
#else
  (void)bytes;
#endif
}

}  // namespace fastloader
