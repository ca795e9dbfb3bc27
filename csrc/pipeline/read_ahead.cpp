#include "pipeline/read_ahead.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/per_process.h"

namespace fastloader {
namespace {

/// Memory that is kept for files to come: so many blocks, none of them larger than that.
constexpr size_t kSpares = 64;
constexpr size_t kLargestSpare = size_t{256} << 10;

}  // namespace

ReadBatch::ReadBatch(ReadAhead& pool, std::shared_ptr<const Source> source,
                     std::vector<uint64_t> indices, Source::Look look)
    : pool_(pool),
      source_(std::move(source)),
      indices_(std::move(indices)),
      look_(look),
      files_(indices_.size()) {}

ReadBatch::~ReadBatch() {
  // In a forked child the pool's mutex may be locked for ever, and nothing of it is of use.
  if (!ReadAhead::is_own(*this)) return;
  size_t bytes = 0;
  for (const File& file : files_) bytes += file.held;
  if (bytes > 0) pool_.let_go(bytes, {});
}

bool ReadBatch::begin(size_t position) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& state = files_[position].state;
  if (state != State::kUntouched) return false;
  state = State::kReading;
  return true;
}

void ReadBatch::finish(size_t position, std::vector<uint8_t> bytes, bool waited) noexcept {
  const size_t held = bytes.capacity();
  pool_.hold(held);
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[position] = File{State::kRead, waited, held, std::move(bytes)};
  read_.notify_all();
}

void ReadBatch::give_up(size_t position) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[position].state = State::kOthers;
  read_.notify_all();
}

void ReadBatch::let_others(size_t position) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& state = files_[position].state;
  if (state != State::kReading) return;
  state = State::kUntouched;
  read_.notify_all();
}

std::optional<bool> ReadBatch::take(size_t position, std::vector<uint8_t>& bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  File& file = files_[position];
  read_.wait(lock, [&] { return file.state != State::kReading; });
  const bool read = std::exchange(file.state, State::kOthers) == State::kRead;
  if (!read) return std::nullopt;
  std::swap(bytes, file.bytes);
  std::vector<uint8_t> spare = std::exchange(file.bytes, {});
  const size_t held = std::exchange(file.held, 0);
  const bool waited = file.waited;
  lock.unlock();
  pool_.let_go(held, std::move(spare));
  return waited;
}

void ReadBatch::Worker::run(ReadBatch& batch, size_t piece) noexcept {
  const size_t begin = piece * batch.together_;
  const size_t end = std::min(batch.files_.size(), begin + batch.together_);
  const auto stopped = [&] { return batch.stopped().load(std::memory_order_relaxed); };
  if (batch.together_ > 1 && !stopped()) {
    std::vector<size_t> mine;
    try {
      mine.reserve(end - begin);
      for (size_t i = begin; i < end; ++i) {
        if (batch.begin(i)) mine.push_back(i);
      }
      read_together(batch, mine);
    } catch (const std::bad_alloc&) {
    }
    // What was not read is anybody's again: other threads may wait for it.
    for (const size_t position : mine) batch.let_others(position);
  }
  for (size_t i = begin; i < end && !stopped(); ++i) {
    if (batch.begin(i)) read_one(batch, i);
  }
}

void ReadBatch::Worker::read_together(ReadBatch& batch, const std::vector<size_t>& positions) {
  std::vector<Source::Wanted> wanted(positions.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].index = batch.indices_[positions[i]];
    wanted[i].bytes = batch.pool_.spare();
  }
  batch.source_->read_together(wanted, ReadAhead::kLargest, [&](Source::Wanted& read) {
    const auto number = static_cast<size_t>(&read - wanted.data());
    batch.finish(positions[number], std::move(read.bytes), read.waited);
  });
}

void ReadBatch::Worker::read_one(ReadBatch& batch, size_t position) noexcept {
  std::vector<uint8_t> bytes = batch.pool_.spare();
  const uint64_t before = own_waits();
  bool read = false;
  try {
    read =
        batch.source_->read_if(batch.indices_[position], bytes, batch.look_, ReadAhead::kLargest);
  } catch (const std::exception&) {
    // Whoever wants the file tries for himself, and says why not. It may have been for lack of
    // descriptors or memory, which the decode threads alone would have had.
  }
  if (read) return batch.finish(position, std::move(bytes), own_waits() != before);
  batch.pool_.let_go(0, std::move(bytes));
  batch.give_up(position);
}

ReadAhead::ReadAhead() : PiecePool("fl-read") { spares_.reserve(kSpares); }

ReadAhead& ReadAhead::shared() { return per_process<ReadAhead>(); }

void ReadAhead::submit(const std::shared_ptr<ReadBatch>& batch) {
  batch->together_ = batch->source_->together();
  PiecePool::submit(batch);
}

size_t ReadAhead::threads() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threads_.size();
}

size_t ReadAhead::threads_for(size_t decode_threads, size_t together) {
  constexpr size_t kLeast = 16;  // files that are read at a time
  constexpr size_t kMost = 64;
  const size_t files = std::clamp(decode_threads * 4, kLeast, kMost);
  return std::max<size_t>(files / together, 2);
}

size_t ReadAhead::held() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(std::max<int64_t>(held_, 0));
}

size_t ReadAhead::room_locked(ReadBatch& /*batch*/) {
  return held_ < kMostHeld ? std::numeric_limits<size_t>::max() : 0;
}

std::vector<uint8_t> ReadAhead::spare() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spares_.empty()) return {};
  std::vector<uint8_t> last = std::move(spares_.back());
  spares_.pop_back();
  return last;
}

void ReadAhead::hold(size_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ += static_cast<int64_t>(bytes);
}

void ReadAhead::let_go(size_t bytes, std::vector<uint8_t> spare) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ -= static_cast<int64_t>(bytes);
  if (spare.capacity() > 0 && spare.capacity() <= kLargestSpare && spares_.size() < kSpares) {
    spares_.push_back(std::move(spare));
  }
  // A thread that had no room may have some now. One is enough: when it has read its file, it looks
  // for more, and the next file that is taken wakes the next thread.
  if (sleeping_ > 0 && !queue_.empty() && held_ < kMostHeld) work_.notify_one();
}

}  // namespace fastloader
