#include "base/clock.h"

#include <cstdlib>
#include <cstring>

namespace fastloader {

bool times_stages() noexcept {
  static const bool on = [] {
    const char* wish = std::getenv("FASTLOADER_STAGE_TIMES");
    return wish == nullptr || std::strcmp(wish, "0") != 0;
  }();
  return on;
}

}  // namespace fastloader
