#pragma once

#include <cstddef>

namespace fastloader {

/// Keeps memory that this process has freed for its next batches, instead of giving it back to the
/// system: a page that comes back costs a fault, and those of large pictures took as long as their
/// decoding. `bytes`: of a usual batch; up to five times as many are kept, and a smaller number
/// gives the rest back. Does nothing for small batches, for which malloc keeps enough by itself,
/// where the user has set malloc's thresholds in the environment, and with another malloc than
/// glibc's.
///
/// The thresholds are the whole process's: this is for worker processes of ours.
class KeptHeap {
 public:
  void keep_for(size_t bytes) noexcept;

 private:
  size_t bytes_ = 0;  // of the batch that the thresholds were set for; 0: they are malloc's own
};

}  // namespace fastloader
