#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/mapping.h"

namespace fastloader {

/// Host memory for CPU batches that comes back when the last tensor on it dies. A fresh 38 MB block
/// costs several times the normalise in page faults; a recycled one costs nothing.
///
/// `allocate` never blocks: the pool grows if the user keeps every batch. The pool keeps `kKept`
/// free blocks, or as many as `keep` says, and unmaps the others as they come back. Memory
/// therefore falls again once the user lets go.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  /// Free blocks kept for the next batch: one in the user's hands, one being filled, and some for
  /// loops that look back.
  static constexpr size_t kKept = 4;

  struct Stats {
    uint64_t made = 0;      ///< blocks mapped so far
    uint64_t recycled = 0;  ///< allocations served from blocks that had come back
    size_t free = 0;        ///< blocks waiting now
    size_t in_use = 0;      ///< blocks under live tensors now
    size_t bytes = 0;       ///< of both
  };

  /// A block in use. Keeps the pool alive; give it back exactly once.
  class Buffer {
   public:
    void* data() const { return mapping_.data(); }
    size_t bytes() const { return mapping_.bytes(); }

   private:
    friend class BufferPool;
    Mapping mapping_;
    std::shared_ptr<BufferPool> pool_;
    uint64_t born_in_ = 0;
    std::unique_ptr<Buffer> next_;  // that is unmapped with it
  };

  /// Only through here: buffers hold a shared_ptr to their pool.
  static std::shared_ptr<BufferPool> create();

  /// A page-aligned block of at least `bytes`, contents undefined. Throws std::bad_alloc.
  Buffer* allocate(size_t bytes);
  /// The same, given back by its last holder.
  std::shared_ptr<std::byte> share(size_t bytes);
  /// share() of this pool, for threads that know nothing of it.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> sharing() {
    return [pool = shared_from_this()](size_t bytes) { return pool->share(bytes); };
  }
  /// Called by the tensor's deleter: any thread, no GIL, also after fork (then the block is simply
  /// unmapped in the child) and after the loader is gone.
  static void deallocate(Buffer* buffer) noexcept;

  /// Keeps `blocks` free blocks from now on, or as many as before if that was more. A loader that
  /// makes more batches ahead needs it: all of them come back at the end of an epoch, and the next
  /// epoch takes them again. Throws std::bad_alloc.
  void keep(size_t blocks);
  /// Besides, keeps up to `kMostSmall` free blocks as long as all of them have at most `bytes`
  /// together: a batch of pictures of sizes of their own has a block for each. Throws
  /// std::bad_alloc.
  static constexpr size_t kMostSmall = 512;
  void keep_small(size_t bytes);

  Stats stats() const;

 private:
  BufferPool() = default;

  /// Whether free blocks are to go. Under the mutex.
  bool too_many() const {
    return free_.size() > kept_ && (free_.size() > kMostSmall || free_bytes_ > small_bytes_);
  }

  mutable std::mutex mutex_;  // guards: free_, free_bytes_, stats_, kept_, small_bytes_
  size_t kept_ = kKept;
  size_t small_bytes_ = 0;
  size_t free_bytes_ = 0;
  std::vector<std::unique_ptr<Buffer>> free_;  // most recently used last, which is taken first
  Stats stats_;
};

}  // namespace fastloader
