#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fastloader {

/// Keeps `message` until `drain_log`. The library never prints. Any thread may call it. It keeps at
/// most 64 messages, and only counts further ones.
void log_warning(std::string message) noexcept;

struct LogDrain {
  std::vector<std::string> messages;
  uint64_t dropped = 0;
};

/// Hands over what has gathered and forgets it. Python passes it on to `logging`.
LogDrain drain_log();

/// Cheap enough to ask at every batch.
bool log_pending() noexcept;

}  // namespace fastloader
