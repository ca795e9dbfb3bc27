#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "pipeline/sample_decoder.h"

namespace fastloader {

/// The share of one loader in the pool: how many threads may work for it at a time, at least one.
/// Lives through a fork: in the child nobody works for it.
class DecodeQuota {
 public:
  /// Throws InvalidArgument for 0.
  explicit DecodeQuota(size_t threads);

 private:
  friend class DecodePool;

  // Guarded by the pool's mutex.
  size_t threads_;
  size_t working_ = 0;
  StageTimes times_;
  uint64_t counted_in_;  // the fork generation whose threads `working_` counts
};

/// One batch of pictures on its way. Made by the consumer, filled by the pool, read by the consumer
/// once `DecodePool::wait` says that it is done. In a forked child one that was not done never will
/// be; it may be dropped there.
class DecodeBatch {
 public:
  /// What there is to say of a sample.
  struct Failure {
    enum class Kind : uint8_t {
      kFailed,   ///< it could not be finished; another decoder may know how
      kRefused,  ///< it could not be, and no other decoder is to try
      kLarge,    ///< it is finished, and so large that somebody may want to know
    };
    size_t position = 0;
    Kind kind = Kind::kFailed;
    std::string reason;
  };

  /// Where the pixels go: recycled memory, or a slot of the ring. Held until the last thread has
  /// let go of the batch.
  using Memory = std::shared_ptr<std::byte>;

  /// `seeds` has one entry per sample, or a single one for all. `memory` is called once, with the
  /// number of bytes. Throws what it throws, InvalidArgument for any other number of seeds, and for
  /// an index that the source does not have.
  DecodeBatch(std::shared_ptr<const ImageJob> job, std::shared_ptr<DecodeQuota> quota,
              std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
              const std::function<Memory(size_t bytes)>& memory);
  DecodeBatch(const DecodeBatch&) = delete;
  DecodeBatch& operator=(const DecodeBatch&) = delete;

  const ImageJob& job() const { return *job_; }
  size_t size() const { return indices_.size(); }
  uint64_t index(size_t position) const { return indices_[position]; }
  uint64_t seed(size_t position) const { return seeds_.size() == 1 ? seeds_[0] : seeds_[position]; }
  /// Throws InvalidArgument once the memory was released.
  std::byte* sample(size_t position) const {
    if (memory_ == nullptr) throw InvalidArgument("the batch's memory was taken already");
    return memory_.get() + position * job_->sample_bytes();
  }
  /// In the order of their positions. Valid once done.
  const std::vector<Failure>& failures() const { return failures_; }
  /// Becomes true when the batch is stopped: what decodes for it looks there.
  const std::atomic<bool>& stopped() const { return stopped_; }
  /// Hands over the memory of a batch that is done.
  Memory release_memory() { return std::move(memory_); }

 private:
  friend class DecodePool;

  const std::shared_ptr<const ImageJob> job_;
  const std::shared_ptr<DecodeQuota> quota_;
  const std::vector<uint64_t> indices_;
  const std::vector<uint64_t> seeds_;
  const uint64_t born_in_;  // fork generation
  Memory memory_;
  // Set under the pool's mutex. Partners: threads that decode, which only ask whether to go on;
  // relaxed.
  std::atomic<bool> stopped_{false};
  // Guarded by the pool's mutex until done.
  size_t claimed_ = 0;
  size_t finished_ = 0;
  bool cancelled_ = false;
  std::vector<Failure> failures_;
};

/// The decode threads of this process, shared by all its loaders. They steal *samples*: the first
/// batch is done after batch / threads pictures, and no thread idles while any batch has pictures
/// left. Batches are begun in the order they were submitted, within each loader's quota.
class DecodePool {
 public:
  using Clock = std::chrono::steady_clock;

  DecodePool() = default;
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  /// The pool of this process; a forked child gets one of its own. Never destroyed.
  static DecodePool& shared();

  /// There are at least this many threads from now on. Throws what active_isa() throws, and
  /// std::system_error when the system gives no thread.
  void grow(size_t threads);
  size_t threads() const;
  /// How many may work for a quota.
  size_t threads(const DecodeQuota& quota) const;
  /// From now on that many, whatever is in the pool; where they are fewer, the others go when they
  /// are done with their sample. Throws what grow() throws, and InvalidArgument for 0.
  void set_threads(DecodeQuota& quota, size_t threads);
  /// All threads, also those to come, yield to the process's others from now on.
  void lower_priority();
  /// Processor time that all threads have used.
  int64_t cpu_ns() const;

  /// Once per batch.
  void submit(std::shared_ptr<DecodeBatch> batch);
  enum class WaitStatus : uint8_t { kDone, kCancelled, kTimeout };
  /// After kDone only the caller touches the batch. Throws Error for a batch that was left
  /// unfinished by a fork.
  WaitStatus wait(const DecodeBatch& batch, Clock::time_point deadline);
  /// What was not begun of the batch never will be, and whoever waits for it is told at once.
  void stop(DecodeBatch& batch);
  /// The same, and waits until no thread works on the batch, which a decoding thread leaves after a
  /// few rows, and a reading one when it has read its file.
  void cancel(DecodeBatch& batch);

  /// What the threads have done for a quota so far.
  StageTimes times(const DecodeQuota& quota) const;
  /// Whether wait() would return at once.
  bool done(const DecodeBatch& batch) const;
  /// What the threads keep from picture to picture: buffers of decoder and resizer.
  size_t scratch_bytes() const;

 private:
  struct Claim {
    std::shared_ptr<DecodeBatch> batch;
    size_t position = 0;
  };

  void work();
  void stop_locked(DecodeBatch& batch);
  bool claim_locked(Claim* claim);
  /// Allocates nothing: what has no memory for its picture still has to be finished.
  void finish_locked(const Claim& claim, std::optional<DecodeBatch::Failure> failure,
                     const StageTimes& times) noexcept;

  mutable std::mutex mutex_;  // guards everything below, and what batches and quotas say it does
  std::condition_variable work_;                    // threads wait
  std::condition_variable finished_;                // wait() and cancel() wait
  std::deque<std::shared_ptr<DecodeBatch>> queue_;  // batches with unclaimed samples
  bool closed_ = false;
  bool low_priority_ = false;
  size_t sleeping_ = 0;       // threads that wait for work_
  size_t scratch_bytes_ = 0;  // of all threads
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace fastloader
