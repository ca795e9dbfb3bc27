#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace fastloader {

/// Host memory that the device reads where it lies, for leaves of a batch that are made before the
/// batch has a slot. A block comes back when its last holder lets go.
///
/// `share` never blocks, and any block that is large enough serves. Where all free ones are too
/// small, the smallest of them gives way to the new one. So there are never more blocks than were
/// in use at a time. As the ring, the pool does not shrink: that would unpin memory, which waits
/// for the device.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  using Allocate = std::function<std::unique_ptr<HostBlock>(size_t bytes)>;

  struct Stats {
    size_t blocks = 0;
    size_t in_use = 0;           ///< of them
    size_t bytes = 0;            ///< of all blocks
    std::string why_not_pinned;  ///< of the first block that could not be pinned
  };

  /// Only through here: who holds a block holds its pool.
  static std::shared_ptr<PinnedPool> create(Allocate allocate);

  /// A block of at least `bytes`, contents undefined. Let go of it on any thread. Throws what the
  /// allocator throws.
  std::shared_ptr<std::byte> share(size_t bytes);
  /// share() of this pool, for threads that know nothing of it.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> sharing() {
    return [pool = shared_from_this()](size_t bytes) { return pool->share(bytes); };
  }
  /// One more holder of the block in which these bytes lie, pointing at them. nullptr if they lie
  /// in none that is held.
  std::shared_ptr<std::byte> holder(const void* address, size_t bytes);

  Stats stats() const;

 private:
  struct Block {
    std::unique_ptr<HostBlock> memory;
    size_t holders = 0;
  };

  explicit PinnedPool(Allocate allocate) : allocate_(std::move(allocate)) {}

  /// Of a holder that was counted already. `offset` is in the block.
  std::shared_ptr<std::byte> counted(Block* block, size_t offset);
  void let_go(Block* block) noexcept;

  const Allocate allocate_;
  mutable std::mutex mutex_;  // guards: blocks_, their counts, why_not_pinned_
  std::vector<std::unique_ptr<Block>> blocks_;
  std::string why_not_pinned_;
};

}  // namespace fastloader
