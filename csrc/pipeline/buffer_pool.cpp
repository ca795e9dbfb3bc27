#include "pipeline/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "base/process.h"

namespace fastloader {
namespace {

constexpr size_t kSmall = size_t{32} << 10;

}  // namespace

std::shared_ptr<BufferPool> BufferPool::create() {
  std::shared_ptr<BufferPool> pool(new BufferPool);
  pool->free_.reserve(kKept + 1);  // deallocate may not throw
  return pool;
}

BufferPool::Buffer* BufferPool::allocate(size_t bytes) {
  std::unique_ptr<Buffer> buffer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A block up to twice as large serves too: the last, smaller batch of an epoch must not cost a
    // block of its own, and batches of varying size settle on a few blocks. Among small blocks the
    // size does not matter at all; a page is always more than twice of a few bytes.
    const size_t most = std::max(bytes, kSmall);
    const auto fits = std::find_if(free_.rbegin(), free_.rend(), [=](const auto& candidate) {
      return candidate->bytes() >= bytes && candidate->bytes() / 2 <= most;
    });
    if (fits != free_.rend()) {
      buffer = std::move(*fits);
      free_.erase(std::next(fits).base());
      free_bytes_ -= buffer->bytes();
      ++stats_.recycled;
      ++stats_.in_use;
    }
  }
  if (buffer == nullptr) {
    buffer = std::make_unique<Buffer>();
    buffer->mapping_ = Mapping(bytes, Mapping::InChild::kCopied);
    const std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.made;
    ++stats_.in_use;
    stats_.bytes += buffer->bytes();
  }
  buffer->pool_ = shared_from_this();
  buffer->born_in_ = fork_generation();
  return buffer.release();
}

std::shared_ptr<std::byte> BufferPool::share(size_t bytes) {
  Buffer* const buffer = allocate(bytes);
  // shared_ptr calls the deleter also when it cannot be made.
  return {static_cast<std::byte*>(buffer->data()), [buffer](std::byte*) { deallocate(buffer); }};
}

void BufferPool::deallocate(Buffer* raw) noexcept {
  std::unique_ptr<Buffer> buffer(raw);
  // In a child the pool's mutex may have been copied while another thread held it.
  if (buffer->born_in_ != fork_generation()) {
    // Unmap, but leak the reference to the pool with the rest of the buffer.
    const Mapping unmapped = std::move(buffer->mapping_);
    (void)buffer.release();
    return;
  }
  const std::shared_ptr<BufferPool> pool = std::move(buffer->pool_);
  std::unique_ptr<Buffer> surplus;  // unmapped outside the lock
  const std::lock_guard<std::mutex> lock(pool->mutex_);
  --pool->stats_.in_use;
  pool->free_bytes_ += buffer->bytes();
  pool->free_.push_back(std::move(buffer));
  while (pool->too_many()) {
    std::unique_ptr<Buffer> oldest = std::move(pool->free_.front());
    pool->free_.erase(pool->free_.begin());
    pool->free_bytes_ -= oldest->bytes();
    pool->stats_.bytes -= oldest->bytes();
    oldest->next_ = std::move(surplus);
    surplus = std::move(oldest);
  }
}

void BufferPool::keep(size_t blocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (blocks <= kept_) return;
  free_.reserve(blocks + 1);
  kept_ = blocks;
}

void BufferPool::keep_small(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.reserve(std::max(kept_, kMostSmall) + 1);
  small_bytes_ = bytes;
}

BufferPool::Stats BufferPool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats copy = stats_;
  copy.free = free_.size();
  return copy;
}

}  // namespace fastloader
