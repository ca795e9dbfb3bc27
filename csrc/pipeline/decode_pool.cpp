#include "pipeline/decode_pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/process.h"

namespace fastloader {

DecodeBatch::DecodeBatch(std::shared_ptr<const ImageJob> job, std::shared_ptr<DecodeQuota> quota,
                         std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
                         const std::shared_ptr<BufferPool>& memory)
    : job_(std::move(job)),
      quota_(std::move(quota)),
      indices_(std::move(indices)),
      seeds_(std::move(seeds)),
      buffer_(nullptr) {
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
  buffer_ = memory->take(indices_.size() * job_->sample_bytes());
}

DecodeBatch::~DecodeBatch() {
  if (buffer_ != nullptr) BufferPool::give_back(buffer_);
}

DecodePool::~DecodePool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    work_.notify_all();
  }
  threads_.clear();
}

DecodePool& DecodePool::shared() {
  static std::mutex mutex;  // guards: instance, made_in
  static DecodePool* instance = nullptr;
  static uint64_t made_in = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (instance == nullptr || made_in != fork_generation()) {
    instance = new DecodePool;  // the parent's, in a child, is leaked: its threads are not here
    made_in = fork_generation();
  }
  return *instance;
}

void DecodePool::grow(size_t threads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (threads_.size() < threads) {
    threads_.push_back(std::make_unique<Thread>("fl-decode", [this] { work(); }));
  }
}

size_t DecodePool::threads() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threads_.size();
}

void DecodePool::submit(std::shared_ptr<DecodeBatch> batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (batch->size() == 0) return;  // done already
  queue_.push_back(std::move(batch));
  work_.notify_all();
}

bool DecodePool::wait(const DecodeBatch& batch, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  return finished_.wait_until(lock, deadline,
                              [&] { return batch.finished_ == batch.indices_.size(); });
}

void DecodePool::cancel(DecodeBatch& batch) {
  std::unique_lock<std::mutex> lock(mutex_);
  batch.cancelled_ = true;
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                              [&](const auto& queued) { return queued.get() == &batch; }),
               queue_.end());
  finished_.wait(lock, [&] { return batch.finished_ == batch.claimed_; });
}

bool DecodePool::claim_locked(Claim* claim) {
  for (auto batch = queue_.begin(); batch != queue_.end(); ++batch) {
    DecodeBatch& next = **batch;
    if (next.quota_->working >= next.quota_->threads) continue;
    ++next.quota_->working;
    claim->batch = *batch;
    claim->position = next.claimed_++;
    if (next.claimed_ == next.indices_.size()) queue_.erase(batch);
    return true;
  }
  return false;
}

void DecodePool::work() {
  SampleDecoder decoder;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Claim claim;
    work_.wait(lock, [&] { return closed_ || claim_locked(&claim); });
    if (claim.batch == nullptr) return;
    lock.unlock();
    DecodeBatch& batch = *claim.batch;
    std::optional<std::string> reason;
    try {
      decoder.decode(*batch.job_, batch.index(claim.position), batch.seed(claim.position),
                     batch.sample(claim.position));
    } catch (const std::exception& error) {
      reason = error.what();
    }
    lock.lock();
    --batch.quota_->working;
    if (reason) {
      const auto behind = std::find_if(
          batch.failures_.begin(), batch.failures_.end(),
          [&](const DecodeBatch::Failure& other) { return other.position > claim.position; });
      batch.failures_.insert(behind, {claim.position, std::move(*reason)});
    }
    ++batch.finished_;
    if (batch.finished_ == batch.indices_.size() || batch.cancelled_) finished_.notify_all();
    // A quota has room again; whoever waits for it may be another thread.
    if (!queue_.empty()) work_.notify_one();
    // The last reference may free the batch's memory: not under the lock.
    lock.unlock();
    claim.batch.reset();
    lock.lock();
  }
}

}  // namespace fastloader
