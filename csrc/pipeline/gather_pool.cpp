#include "pipeline/gather_pool.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/trace.h"

namespace fastloader {
namespace {

/// Enough work to be worth a claim, little enough that threads end together.
constexpr size_t kPieceBytes = size_t{256} << 10;
/// A piece of very short rows is bound by their number.
constexpr size_t kPieceRows = 8192;

}  // namespace

GatherBatch::GatherBatch(std::vector<GatherLeaf> leaves, std::vector<std::vector<uint64_t>> lists)
    : leaves_(std::move(leaves)), lists_(std::move(lists)), born_in_(fork_generation()) {
  for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (leaves_[leaf].list >= lists_.size()) {
      throw InvalidArgument("an array asks for list of rows " + std::to_string(leaves_[leaf].list) +
                            " of " + std::to_string(lists_.size()));
    }
    const size_t rows = lists_[leaves_[leaf].list].size();
    if (leaves_[leaf].row_bytes == 0) continue;
    const size_t each = std::clamp<size_t>(kPieceBytes / leaves_[leaf].row_bytes, 1, kPieceRows);
    for (size_t begin = 0; begin < rows; begin += each) {
      pieces_.push_back({leaf, begin, std::min(begin + each, rows)});
    }
  }
}

int64_t GatherBatch::copy(size_t piece) const {
  const trace::Span span("collate");
  Lap lap(times_stages());
  const Piece& wanted = pieces_[piece];
  const GatherLeaf& leaf = leaves_[wanted.leaf];
  gather_rows(leaf, lists_[leaf.list].data(), wanted.begin, wanted.end);
  return lap();
}

GatherPool::~GatherPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    work_.notify_all();
  }
  threads_.clear();
}

void GatherPool::grow(size_t threads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (threads_.size() >= threads) return;
  threads_.reserve(threads);  // a thread that found no place would be joined, under its own mutex
  while (threads_.size() < threads) {
    threads_.push_back(std::make_unique<Thread>("fl-gather", [this] { work(); }));
  }
}

void GatherPool::submit(std::shared_ptr<GatherBatch> batch) {
  const size_t pieces = batch->pieces();
  if (pieces == 0) return;  // done already
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(batch));
  // A thread that is at work looks at the queue again before it sleeps.
  if (pieces >= threads_.size()) {
    work_.notify_all();
  } else {
    for (size_t i = 0; i < pieces; ++i) work_.notify_one();
  }
}

bool GatherPool::wait(GatherBatch& batch, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const size_t pieces = batch.pieces();
  if (batch.born_in_ != fork_generation() && batch.finished_ != pieces) {
    throw Error("a batch that was begun before this process was forked off is never finished here");
  }
  while (batch.claimed_ < pieces) {
    const size_t piece = batch.claimed_++;
    if (batch.claimed_ == pieces) forget_locked(batch);
    lock.unlock();
    const int64_t took = batch.copy(piece);
    const bool late = Clock::now() >= deadline;
    lock.lock();
    batch.nanoseconds_ += took;
    ++batch.finished_;
    if (late && batch.finished_ != pieces) return false;
  }
  return finished_.wait_until(lock, deadline, [&] { return batch.finished_ == pieces; });
}

void GatherPool::cancel(GatherBatch& batch) {
  // Whoever works on it works in the parent.
  if (batch.born_in_ != fork_generation()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  forget_locked(batch);
  finished_.wait(lock, [&] { return batch.finished_ == batch.claimed_; });
}

int64_t GatherPool::nanoseconds(const GatherBatch& batch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return batch.nanoseconds_;
}

void GatherPool::forget_locked(const GatherBatch& batch) {
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                              [&](const auto& queued) { return queued.get() == &batch; }),
               queue_.end());
}

void GatherPool::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closed_) {
    if (queue_.empty()) {
      work_.wait(lock);
      continue;
    }
    const std::shared_ptr<GatherBatch> batch = queue_.front();
    const size_t piece = batch->claimed_++;
    if (batch->claimed_ == batch->pieces()) queue_.pop_front();
    lock.unlock();
    const int64_t took = batch->copy(piece);
    lock.lock();
    batch->nanoseconds_ += took;
    ++batch->finished_;
    // Also when the owner has cancelled it and waits for this piece alone.
    if (batch->finished_ == batch->claimed_) finished_.notify_all();
  }
}

}  // namespace fastloader
