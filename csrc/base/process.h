#pragma once

#include <cstdint>

namespace fastloader {

/// Number of forks between this process and the one that loaded the library. An object that owns
/// threads or device state remembers it at birth; in a child the number differs, the threads are
/// not there, and the object must be leaked instead of closed.
uint64_t fork_generation() noexcept;

/// Set once the interpreter or the process begins to exit; from then on device objects are leaked,
/// because the driver may be gone before them.
bool process_exiting() noexcept;
void set_process_exiting() noexcept;

}  // namespace fastloader
