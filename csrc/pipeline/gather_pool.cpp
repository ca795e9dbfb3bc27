#include "pipeline/gather_pool.h"

#include <algorithm>
#include <exception>
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
    : leaves_(std::move(leaves)), lists_(std::move(lists)) {
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

void GatherBatch::Worker::run(const GatherBatch& batch, size_t piece) noexcept {
  const trace::Span span("collate");
  Lap lap(times_stages());
  const Piece& wanted = batch.pieces_[piece];
  const GatherLeaf& leaf = batch.leaves_[wanted.leaf];
  size_t read = wanted.begin;
  try {
    read = gather_rows(leaf, batch.lists_[leaf.list].data(), wanted.begin, wanted.end);
  } catch (const std::exception&) {
    // The system gives no means to read the file, whose rows count as unread.
  }
  unread_.reset();
  if (read < wanted.end) unread_ = UnreadRow{wanted.leaf, read};
  nanoseconds_ = lap();
}

bool GatherPool::wait(GatherBatch& batch, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  require_own_locked(batch);
  Worker worker;
  while (has_unclaimed_locked(batch)) {
    const size_t piece = claim_locked(batch);
    lock.unlock();
    worker.run(batch, piece);
    const bool late = Clock::now() >= deadline;
    lock.lock();
    finish_locked(batch, piece, worker);
    if (late && !done_locked(batch)) return false;
  }
  return finished_.wait_until(lock, deadline, [&] { return done_locked(batch); });
}

std::optional<UnreadRow> GatherPool::unread(const GatherBatch& batch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return batch.unread_;
}

int64_t GatherPool::nanoseconds(const GatherBatch& batch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return batch.nanoseconds_;
}

void GatherPool::ran_locked(GatherBatch& batch, size_t /*piece*/, Worker& worker) noexcept {
  batch.nanoseconds_ += worker.nanoseconds_;
  if (!batch.unread_) batch.unread_ = worker.unread_;
}

}  // namespace fastloader
