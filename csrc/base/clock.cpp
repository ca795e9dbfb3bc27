#include "base/clock.h"

#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace fastloader {

bool times_stages() noexcept {
  // Partner: itself; relaxed, since nothing but the answer is published.
  static std::atomic<int> known{-1};
  int found = known.load(std::memory_order_relaxed);
  if (found < 0) {
    const char* wish = std::getenv("FASTLOADER_STAGE_TIMES");
    found = wish == nullptr || std::strcmp(wish, "0") != 0 ? 1 : 0;
    known.store(found, std::memory_order_relaxed);
  }
  return found == 1;
}

uint64_t own_waits() {
#ifdef RUSAGE_THREAD
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return static_cast<uint64_t>(usage.ru_nvcsw);
#endif
  return 0;
}

}  // namespace fastloader
