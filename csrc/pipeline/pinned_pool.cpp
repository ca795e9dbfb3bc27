#include "pipeline/pinned_pool.h"

#include <cstdint>
#include <utility>

#include "base/process.h"

namespace fastloader {

std::shared_ptr<PinnedPool> PinnedPool::create(Allocate allocate) {
  return std::shared_ptr<PinnedPool>(new PinnedPool(std::move(allocate)));
}

std::shared_ptr<std::byte> PinnedPool::share(size_t bytes) {
  Block* taken = nullptr;
  std::unique_ptr<Block> outgrown;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t smallest = blocks_.size();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block* const each = blocks_[i].get();
      if (each->holders > 0) continue;
      const size_t has = each->memory->bytes();
      if (smallest == blocks_.size() || has < blocks_[smallest]->memory->bytes()) smallest = i;
      if (has >= bytes && (taken == nullptr || has < taken->memory->bytes())) taken = each;
    }
    if (taken != nullptr) {
      taken->holders = 1;
    } else if (smallest < blocks_.size()) {
      std::swap(blocks_[smallest], blocks_.back());
      outgrown = std::move(blocks_.back());
      blocks_.pop_back();
    }
  }
  if (taken != nullptr) return counted(taken, 0);
  outgrown.reset();  // first, so that the two are never there at the same time
  auto made = std::make_unique<Block>();
  made->memory = allocate_(bytes);
  made->holders = 1;
  taken = made.get();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!taken->memory->pinned() && why_not_pinned_.empty()) {
      why_not_pinned_ = taken->memory->why_not_pinned();
    }
    blocks_.push_back(std::move(made));
  }
  return counted(taken, 0);
}

std::shared_ptr<std::byte> PinnedPool::holder(const void* address, size_t bytes) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  Block* found = nullptr;
  size_t offset = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& each : blocks_) {
      const auto begin = reinterpret_cast<uintptr_t>(each->memory->data());
      const size_t has = each->memory->bytes();
      if (wanted < begin || wanted - begin >= has) continue;
      offset = wanted - begin;
      if (each->holders > 0 && bytes <= has - offset) found = each.get();
      break;
    }
    if (found == nullptr) return nullptr;
    ++found->holders;
  }
  return counted(found, offset);
}

std::shared_ptr<std::byte> PinnedPool::counted(Block* block, size_t offset) {
  // shared_ptr calls the deleter also when it cannot be made.
  return {static_cast<std::byte*>(block->memory->data()) + offset,
          [pool = shared_from_this(), block, born_in = fork_generation()](std::byte*) {
            // In a child the mutex may have been copied while another thread held it.
            if (born_in == fork_generation()) pool->let_go(block);
          }};
}

void PinnedPool::let_go(Block* block) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  --block->holders;
}

PinnedPool::Stats PinnedPool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats;
  stats.blocks = blocks_.size();
  stats.why_not_pinned = why_not_pinned_;
  for (const auto& each : blocks_) {
    stats.bytes += each->memory->bytes();
    if (each->holders > 0) ++stats.in_use;
  }
  return stats;
}

}  // namespace fastloader
