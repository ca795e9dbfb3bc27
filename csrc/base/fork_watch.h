#pragma once

#include <cstdint>

namespace fastloader {

/// Knows which forked children may still see this process's shared memory. A child inherits every
/// object that was alive at the fork, so memory that is shared with it and was in use then must not
/// be reused while it lives.
///
/// Starts watching the forks of this process; forks before are not known. Idempotent, and needed
/// again in a child that has shared memory of its own. Throws std::bad_alloc.
void watch_forks();

/// Number of forks begun in this process since it began to watch.
uint64_t forks_begun() noexcept;

/// Whether a child of one of the forks numbered `after` + 1 to `upto`, or a child of such a child,
/// has the memory of this process still: it is alive and has not called exec. When in doubt, yes:
/// where other code has closed our descriptors, or the system had none left. Two system calls for
/// each such fork.
bool forked_child_lives(uint64_t after, uint64_t upto) noexcept;

}  // namespace fastloader
