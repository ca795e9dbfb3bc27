#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread.h"
#include "pipeline/gather.h"

namespace fastloader {

/// One batch of rows on its way, in pieces that any thread may take. Its owner keeps sources and
/// destinations alive until it is done or cancelled. In a forked child one that was not done never
/// will be; it may be dropped there.
class GatherBatch {
 public:
  /// Throws InvalidArgument for a leaf without a list of rows.
  GatherBatch(std::vector<GatherLeaf> leaves, std::vector<std::vector<uint64_t>> lists);

  size_t pieces() const { return pieces_.size(); }

 private:
  friend class GatherPool;

  struct Piece {
    size_t leaf = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  /// Returns the nanoseconds it took.
  int64_t copy(size_t piece) const;

  const std::vector<GatherLeaf> leaves_;
  const std::vector<std::vector<uint64_t>> lists_;
  const uint64_t born_in_;  // fork generation
  std::vector<Piece> pieces_;
  // Guarded by the pool's mutex.
  size_t claimed_ = 0;
  size_t finished_ = 0;
  int64_t nanoseconds_ = 0;  // of the threads that copied, the waiting one included
};

/// The gather threads of this process, shared by all its loaders. Batches are begun in the order
/// they were submitted; whoever waits for one copies pieces of it as well.
class GatherPool {
 public:
  using Clock = std::chrono::steady_clock;

  GatherPool() = default;
  ~GatherPool();
  GatherPool(const GatherPool&) = delete;
  GatherPool& operator=(const GatherPool&) = delete;

  /// There are at least this many threads from now on. Throws std::system_error when the system
  /// gives no thread.
  void grow(size_t threads);

  /// Offers the batch to the threads; at most once per batch. Without it, wait() does all of it.
  void submit(std::shared_ptr<GatherBatch> batch);
  /// Copies what nobody has begun, then waits for what others have. False at the deadline. Throws
  /// Error for a batch that was left unfinished by a fork.
  bool wait(GatherBatch& batch, Clock::time_point deadline);
  /// Waits until no thread works on the batch, at most one piece's time; what was not begun never
  /// will be.
  void cancel(GatherBatch& batch);
  /// What copying has cost its threads so far, in nanoseconds.
  int64_t nanoseconds(const GatherBatch& batch) const;

 private:
  void work();
  void forget_locked(const GatherBatch& batch);

  mutable std::mutex mutex_;                        // guards everything below, and batches' counts
  std::condition_variable work_;                    // threads wait
  std::condition_variable finished_;                // wait() and cancel() wait
  std::deque<std::shared_ptr<GatherBatch>> queue_;  // batches with unclaimed pieces
  bool closed_ = false;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace fastloader
