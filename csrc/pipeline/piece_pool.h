#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

namespace fastloader {

/// One batch on its way, in pieces that any thread of a PiecePool may take. A forked child can drop
/// a batch that was not done at the fork, but never finishes it.
class PieceBatch {
 public:
  PieceBatch(const PieceBatch&) = delete;
  PieceBatch& operator=(const PieceBatch&) = delete;

  /// Becomes true when the batch is stopped. A thread that works on a piece may look there.
  const std::atomic<bool>& stopped() const { return stopped_; }

 protected:
  PieceBatch() : born_in_(fork_generation()) {}
  ~PieceBatch() = default;

 private:
  template <typename Batch>
  friend class PiecePool;

  const uint64_t born_in_;  // fork generation
  // Set under the pool's mutex. Partners: threads at work on a piece, which only ask whether to go
  // on; relaxed.
  std::atomic<bool> stopped_{false};
  // Guarded by the pool's mutex.
  size_t claimed_ = 0;
  size_t finished_ = 0;
};

/// The queue of batches and the threads of one pool. The threads take *pieces*, not batches, and
/// begin batches in the order in which they were submitted. The owner of a batch waits for it or
/// cancels it.
///
/// `Batch` is a PieceBatch with
///   - `size_t pieces() const`, which never changes;
///   - `Worker`, the state that one thread keeps from piece to piece. Its `run(Batch&, size_t
///     piece)` does one piece, without the mutex, and throws nothing.
///
/// A pool derives from this class, overrides the hooks below, and calls `end` in its destructor.
template <typename Batch>
class PiecePool {
 public:
  using Clock = std::chrono::steady_clock;
  using Worker = typename Batch::Worker;

  PiecePool(const PiecePool&) = delete;
  PiecePool& operator=(const PiecePool&) = delete;

  /// There are at least this many threads from now on, or as many as the system gives: fewer do the
  /// work as well. Throws Error when it gives none. Those that there were run where the caller may,
  /// if it may run on more processors than they.
  void grow(size_t threads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cpu_set_t callers{};
    // It fails where there are more processors than fit in there.
    const bool known = sched_getaffinity(0, sizeof callers, &callers) == 0;
    const cpu_set_t allowed = kept_locked(callers);
    cpu_set_t common{};
    CPU_AND(&common, &allowed, &allowed_);
    // Fewer processors may be those of the caller alone: OpenMP binds the thread of a training loop
    // to one, when OMP_PROC_BIND is set, and of two loops each may have its own.
    if (known && CPU_EQUAL(&common, &allowed_) && !CPU_EQUAL(&allowed, &allowed_)) {
      move_locked(allowed);
    }
    if (threads_.size() >= threads) return;
    threads_.reserve(threads);  // a thread that found no place would be joined, under its own mutex
    while (threads_.size() < threads) {
      try {
        threads_.push_back(std::make_unique<Thread>(name_, [this] { work(); }));
        // It was made where the caller runs.
        if (known && !CPU_EQUAL(&callers, &allowed_)) threads_.back()->run_on(allowed_);
      } catch (const Error& error) {
        const std::string counted = std::to_string(threads_.size()) + " of " +
                                    std::to_string(threads) + " threads run: " + error.what();
        if (threads_.empty()) throw Error(counted);
        if (!std::exchange(warned_, true)) log_warning(counted);
        return;
      }
    }
  }

  /// The threads run only on these processors from now on, as far as the caller may run there. What
  /// several callers have asked for is added up: each has threads of all.
  void keep_on(const cpu_set_t& processors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    CPU_OR(&kept_, &kept_, &processors);
    cpu_set_t callers{};
    if (sched_getaffinity(0, sizeof callers, &callers) == 0) move_locked(kept_locked(callers));
  }

  /// Offers the batch to the threads; at most once per batch.
  void submit(std::shared_ptr<Batch> batch) {
    size_t wanted = 0;
    bool all = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (batch->pieces() == 0) return;  // done already
      wanted = std::min(batch->pieces(), room_locked(*batch));
      queue_.push_back(std::move(batch));
      all = wanted >= sleeping_;
    }
    // Wakes no more threads than there is work for, and wakes them without the mutex. On a busy
    // machine, a thread that wakes in vain may take the caller's processor for a few milliseconds.
    if (all) {
      work_.notify_all();
    } else {
      for (size_t i = 0; i < wanted; ++i) work_.notify_one();
    }
  }

  /// Threads that find nothing to do.
  size_t sleeping() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sleeping_;
  }

  /// Whether wait() would return at once.
  bool done(const Batch& batch) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return done_locked(batch);
  }

  /// Threads begin no more pieces of the batch. A thread that waits for a DecodeBatch returns at
  /// once; the owner of a GatherBatch waits for it no more.
  void stop(Batch& batch) {
    if (!is_own(batch)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_locked(batch);
  }

  /// Does as `stop`, then waits until no thread works on the batch.
  void cancel(Batch& batch) {
    // The threads that work on it are in the parent.
    if (!is_own(batch)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    stop_locked(batch);
    finished_.wait(lock, [&] { return batch.finished_ == batch.claimed_; });
  }

  /// Whether this process made the batch: a forked child did not make those of its parent.
  static bool is_own(const PieceBatch& batch) { return batch.born_in_ == fork_generation(); }

 protected:
  /// `name` is the threads', 15 characters at most.
  explicit PiecePool(const char* name) : name_(name) {}
  ~PiecePool() = default;

  /// Ends the threads, which call the hooks. Once.
  void end() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      work_.notify_all();
    }
    threads_.clear();
  }

  // --- hooks, called with the mutex held --------------------------------------------------------

  /// How many more threads may work on the batch.
  virtual size_t room_locked(Batch& /*batch*/) { return std::numeric_limits<size_t>::max(); }
  /// A piece of it was claimed.
  virtual void claimed_locked(Batch& /*batch*/) {}
  /// `worker` has done the piece. Must not allocate: a piece that found no memory ends here, too.
  virtual void ran_locked(Batch& batch, size_t piece, Worker& worker) noexcept = 0;
  /// A thread looks for something to do.
  virtual void looking_locked(Worker& /*worker*/) {}

  // --- for waits of the pool's own, with the mutex held -----------------------------------------

  bool done_locked(const Batch& batch) const { return batch.finished_ == batch.pieces(); }

  /// Throws Error for a batch that was left unfinished by a fork.
  void require_own_locked(const Batch& batch) const {
    if (is_own(batch) || done_locked(batch)) return;
    throw Error("a batch that was begun before this process was forked off is never finished here");
  }

  bool has_unclaimed_locked(const Batch& batch) const { return batch.claimed_ < batch.pieces(); }

  /// The number of its next piece, which is the caller's to run and to finish.
  size_t claim_locked(Batch& batch) {
    claimed_locked(batch);
    const size_t piece = batch.claimed_++;
    if (!has_unclaimed_locked(batch)) withdraw_locked(batch);
    return piece;
  }

  void finish_locked(Batch& batch, size_t piece, Worker& worker) noexcept {
    ran_locked(batch, piece, worker);
    ++batch.finished_;
    // No thread waits for a count in between.
    const bool stopped = batch.stopped_.load(std::memory_order_relaxed);
    if (done_locked(batch) || (stopped && batch.finished_ == batch.claimed_)) {
      finished_.notify_all();
    }
  }

  // Guards everything below, what batches say it does, and what a pool adds of its own.
  mutable std::mutex mutex_;
  std::condition_variable work_;              // threads wait
  std::condition_variable finished_;          // threads wait for a batch, or cancel it
  std::deque<std::shared_ptr<Batch>> queue_;  // batches with unclaimed pieces
  bool closed_ = false;
  size_t sleeping_ = 0;  // threads that wait for work_
  std::vector<std::unique_ptr<Thread>> threads_;
  bool warned_ = false;  // that the system gives no more
  cpu_set_t allowed_{};  // where the threads run
  cpu_set_t kept_{};     // what keep_on() was asked for; none: no one has asked

 private:
  /// The processors, of those where a caller may run, on which the threads are to be kept.
  cpu_set_t kept_locked(const cpu_set_t& callers) const {
    cpu_set_t both{};
    CPU_AND(&both, &callers, &kept_);
    return CPU_COUNT(&both) > 0 ? both : callers;
  }

  void move_locked(const cpu_set_t& processors) {
    allowed_ = processors;
    for (const std::unique_ptr<Thread>& each : threads_) each->run_on(processors);
  }

  void withdraw_locked(const Batch& batch) {
    queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                                [&](const auto& queued) { return queued.get() == &batch; }),
                 queue_.end());
  }

  void stop_locked(Batch& batch) {
    batch.stopped_.store(true, std::memory_order_relaxed);
    // Threads that waited for a batch that is done were told so. Waking them again for each batch
    // that is dropped would only disturb the threads that wait for another one.
    if (!done_locked(batch)) finished_.notify_all();
    withdraw_locked(batch);
  }

  /// The first batch in the queue that a thread may work on.
  std::shared_ptr<Batch> next_locked() {
    for (const std::shared_ptr<Batch>& batch : queue_) {
      if (room_locked(*batch) > 0) return batch;
    }
    return nullptr;
  }

  void work() {
    Worker worker;
    std::shared_ptr<Batch> left;  // perhaps the last reference; dropped without the mutex
    std::unique_lock<std::mutex> lock(mutex_);
    while (!closed_) {
      looking_locked(worker);
      // No thread sleeps while there is a piece that it may claim. submit() wakes as many threads
      // as may claim a piece of its batch. A thread whose finished piece makes room for another
      // looks for work itself before it lets go of the mutex. No other wake-up is needed, and one
      // would cost more than the rest of this loop.
      std::shared_ptr<Batch> batch = next_locked();
      if (batch == nullptr) {
        if (left == nullptr) {
          ++sleeping_;
          work_.wait(lock);
          --sleeping_;
        } else {
          lock.unlock();
          left.reset();
          lock.lock();
        }
        continue;
      }
      const size_t piece = claim_locked(*batch);
      lock.unlock();
      left.reset();
      worker.run(*batch, piece);
      lock.lock();
      finish_locked(*batch, piece, worker);
      left = std::move(batch);
    }
  }

  const char* const name_;
};

}  // namespace fastloader
