#include "pipeline/decode_pool.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/per_process.h"
#include "base/process.h"
#include "image/dispatch.h"

namespace fastloader {
namespace {

/// Short enough to lie in a std::string itself, which it has to: there is no memory for another.
constexpr const char* kOutOfMemory = "out of memory";

using Failure = DecodeBatch::Failure;

/// What a thread says of a sample that failed with the exception it is handling.
Failure failure_at(size_t position) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return {position, Failure::Kind::kFailed, kOutOfMemory};
    } catch (const RefusedImage& error) {
      return {position, Failure::Kind::kRefused, error.what()};
    } catch (const std::exception& error) {
      return {position, Failure::Kind::kFailed, error.what()};
    } catch (...) {
      return {position, Failure::Kind::kFailed,
              "something that is not a std::exception was thrown"};
    }
  } catch (const std::bad_alloc&) {  // of the text
    return {position, Failure::Kind::kFailed, kOutOfMemory};
  }
}

/// In Pillow's words.
Failure large_at(size_t position, uint64_t pixels, uint64_t limit) {
  return {position, Failure::Kind::kLarge,
          "Image size (" + std::to_string(pixels) + " pixels) exceeds limit of " +
              std::to_string(limit) + " pixels, could be decompression bomb DOS attack."};
}

}  // namespace

DecodeQuota::DecodeQuota(size_t threads) : threads_(threads), counted_in_(fork_generation()) {
  if (threads == 0) throw InvalidArgument("a quota of no threads would never decode anything");
}

DecodeBatch::DecodeBatch(std::shared_ptr<const ImageJob> job, std::shared_ptr<DecodeQuota> quota,
                         std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
                         const std::function<Memory(size_t bytes)>& memory)
    : job_(std::move(job)),
      quota_(std::move(quota)),
      indices_(std::move(indices)),
      seeds_(std::move(seeds)),
      born_in_(fork_generation()) {
  if (seeds_.size() != 1 && seeds_.size() != indices_.size()) {
    throw InvalidArgument("a batch of " + std::to_string(indices_.size()) + " samples with " +
                          std::to_string(seeds_.size()) + " seeds");
  }
  for (const uint64_t index : indices_) {
    if (index >= job_->source->size()) {
      throw InvalidArgument("sample " + std::to_string(index) + " of " +
                            std::to_string(job_->source->size()));
    }
  }
  const size_t bytes = job_->sample_bytes();
  if (indices_.size() > std::numeric_limits<size_t>::max() / std::max<size_t>(bytes, 1)) {
    throw std::bad_alloc();
  }
  memory_ = memory(indices_.size() * bytes);
  failures_.reserve(indices_.size());  // a thread that has no memory has to be able to say so
}

DecodePool::~DecodePool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    work_.notify_all();
  }
  threads_.clear();
}

DecodePool& DecodePool::shared() { return per_process<DecodePool>(); }

void DecodePool::grow(size_t threads) {
  active_isa();  // a wrong FASTLOADER_FORCE_ISA is the caller's to hear of, not a thread's
  const std::lock_guard<std::mutex> lock(mutex_);
  if (threads_.size() >= threads) return;
  threads_.reserve(threads);  // a thread that found no place would be joined, under its own mutex
  while (threads_.size() < threads) {
    threads_.push_back(std::make_unique<Thread>("fl-decode", [this] { work(); }));
  }
}

size_t DecodePool::threads() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threads_.size();
}

size_t DecodePool::threads(const DecodeQuota& quota) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return quota.threads_;
}

void DecodePool::set_threads(DecodeQuota& quota, size_t threads) {
  if (threads == 0) throw InvalidArgument("a quota of no threads would never decode anything");
  grow(threads);
  const std::lock_guard<std::mutex> lock(mutex_);
  quota.threads_ = threads;
  work_.notify_all();  // those who found the quota taken
}

void DecodePool::lower_priority() {
  const std::lock_guard<std::mutex> lock(mutex_);
  low_priority_ = true;
  work_.notify_all();
}

int64_t DecodePool::cpu_ns() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t sum = 0;
  for (const auto& thread : threads_) sum += thread->cpu_ns();
  return sum;
}

void DecodePool::submit(std::shared_ptr<DecodeBatch> batch) {
  size_t wanted = 0;
  bool all = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (batch->size() == 0) return;  // done already
    DecodeQuota& quota = *batch->quota_;
    if (quota.counted_in_ != fork_generation()) {
      quota.working_ = 0;
      quota.counted_in_ = fork_generation();
    }
    if (quota.working_ < quota.threads_) {
      wanted = std::min(batch->size(), quota.threads_ - quota.working_);
    }
    queue_.push_back(std::move(batch));
    all = wanted >= sleeping_;
  }
  // As many as find something, and when they can have the mutex: on a machine whose processors are
  // all taken, each that wakes in vain may cost the caller its own for a few milliseconds.
  if (all) {
    work_.notify_all();
  } else {
    for (size_t i = 0; i < wanted; ++i) work_.notify_one();
  }
}

DecodePool::WaitStatus DecodePool::wait(const DecodeBatch& batch, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (batch.born_in_ != fork_generation() && batch.finished_ != batch.indices_.size()) {
    throw Error("a batch that was begun before this process was forked off is never finished here");
  }
  const auto done = [&] { return batch.finished_ == batch.indices_.size(); };
  finished_.wait_until(lock, deadline, [&] { return done() || batch.cancelled_; });
  if (done()) return WaitStatus::kDone;
  return batch.cancelled_ ? WaitStatus::kCancelled : WaitStatus::kTimeout;
}

size_t DecodePool::scratch_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return scratch_bytes_;
}

StageTimes DecodePool::times(const DecodeQuota& quota) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return quota.times_;
}

bool DecodePool::done(const DecodeBatch& batch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return batch.finished_ == batch.indices_.size();
}

void DecodePool::stop(DecodeBatch& batch) {
  if (batch.born_in_ != fork_generation()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  stop_locked(batch);
}

void DecodePool::cancel(DecodeBatch& batch) {
  // Whoever works on it works in the parent.
  if (batch.born_in_ != fork_generation()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  stop_locked(batch);
  finished_.wait(lock, [&] { return batch.finished_ == batch.claimed_; });
}

void DecodePool::stop_locked(DecodeBatch& batch) {
  batch.cancelled_ = true;
  batch.stopped_.store(true, std::memory_order_relaxed);
  finished_.notify_all();
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                              [&](const auto& queued) { return queued.get() == &batch; }),
               queue_.end());
}

bool DecodePool::claim_locked(Claim* claim) {
  for (auto batch = queue_.begin(); batch != queue_.end(); ++batch) {
    DecodeBatch& next = **batch;
    if (next.quota_->working_ >= next.quota_->threads_) continue;
    ++next.quota_->working_;
    claim->batch = *batch;
    claim->position = next.claimed_++;
    if (next.claimed_ == next.indices_.size()) queue_.erase(batch);
    return true;
  }
  return false;
}

void DecodePool::finish_locked(const Claim& claim, std::optional<Failure> failure,
                               const StageTimes& times) noexcept {
  DecodeBatch& batch = *claim.batch;
  --batch.quota_->working_;
  batch.quota_->times_.add(times);
  if (failure) {
    const auto behind =
        std::find_if(batch.failures_.begin(), batch.failures_.end(),
                     [&](const Failure& other) { return other.position > claim.position; });
    batch.failures_.insert(behind, std::move(*failure));
  }
  ++batch.finished_;
  if (batch.finished_ == batch.indices_.size() || batch.cancelled_) finished_.notify_all();
}

void DecodePool::work() {
  std::optional<SampleDecoder>
      decoder;                        // made with the first sample, whose error it is if it cannot
  size_t scratch = 0;                 // its share of scratch_bytes_
  std::shared_ptr<DecodeBatch> left;  // perhaps the last reference; dropped without the mutex
  bool lowered = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closed_) {
    if (low_priority_ && !lowered) {
      lowered = true;
      lower_own_priority();  // a system call; once in a thread's life
    }
    // No thread sleeps while there is a sample that it may claim: submit() wakes as many as may
    // claim one of its batch, and what a finished sample makes room for in its quota, its thread
    // looks for itself before it lets go of the mutex. So nobody is woken in between, which would
    // cost more than the rest of this.
    Claim claim;
    if (!claim_locked(&claim)) {
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
    lock.unlock();
    left.reset();
    const DecodeBatch& batch = *claim.batch;
    std::optional<Failure> failure;
    try {
      if (!decoder) decoder.emplace();
      decoder->decode(*batch.job_, batch.index(claim.position), batch.seed(claim.position),
                      batch.sample(claim.position), &batch.stopped_);
      if (decoder->large() > 0) {
        failure = large_at(claim.position, decoder->large(), batch.job_->large_pixels);
      }
    } catch (...) {
      failure = failure_at(claim.position);
    }
    const size_t kept = decoder ? decoder->scratch_bytes() : 0;
    const StageTimes times = decoder ? decoder->times() : StageTimes{};
    lock.lock();
    scratch_bytes_ += kept - scratch;
    scratch = kept;
    finish_locked(claim, std::move(failure), times);
    left = std::move(claim.batch);
  }
}

}  // namespace fastloader
