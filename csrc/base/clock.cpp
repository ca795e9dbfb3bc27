#include "base/clock.h"

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

}  // namespace fastloader
