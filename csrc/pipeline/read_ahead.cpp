#include "pipeline/read_ahead.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/per_process.h"
#include "base/thread.h"

namespace fastloader {
namespace {

/// Memory that is kept for files to come: so many blocks, none of them larger than that.
constexpr size_t kSpares = 64;
constexpr size_t kLargestSpare = size_t{1} << 20;

}  // namespace

ReadBatch::ReadBatch(ReadAhead& pool, std::shared_ptr<const Source> source,
                     std::vector<uint64_t> indices, Source::Look look)
    : pool_(pool),
      source_(std::move(source)),
      indices_(std::move(indices)),
      look_(look),
      together_(source_->together()),
      files_(indices_.size()) {}

ReadBatch::~ReadBatch() {
  // In a forked child the pool's mutex may be locked for ever, and nothing of it is of use.
  if (!ReadAhead::is_own(*this)) return;
  size_t bytes = 0;
  for (const File& file : files_) bytes += file.bytes.size();
  if (bytes > 0) pool_.let_go(bytes, {});
}

bool ReadBatch::begin(size_t position) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& state = files_[position].state;
  if (state != State::kUntouched) return false;
  state = State::kReading;
  return true;
}

bool ReadBatch::is_reading(size_t position) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return files_[position].state == State::kReading;
}

void ReadBatch::finish(size_t position, File file) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[position] = std::move(file);
  read_.notify_all();
}

std::optional<bool> ReadBatch::take(size_t position, std::vector<uint8_t>& bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  File& file = files_[position];
  read_.wait(lock, [&] { return file.state != State::kReading; });
  if (file.state != State::kRead) {
    file.state = State::kOthers;
    return std::nullopt;
  }
  file.state = State::kOthers;
  if (file.error != nullptr) std::rethrow_exception(std::exchange(file.error, nullptr));
  std::swap(bytes, file.bytes);
  std::vector<uint8_t> spare = std::exchange(file.bytes, {});
  lock.unlock();
  pool_.let_go(bytes.size(), std::move(spare));
  return file.waited;
}

void ReadBatch::Worker::run(ReadBatch& batch, size_t piece) noexcept {
  const size_t begin = piece * batch.together_;
  const size_t end = std::min(batch.files_.size(), begin + batch.together_);
  std::vector<size_t> mine;
  try {
    mine.reserve(end - begin);
  } catch (const std::bad_alloc&) {
    return;  // untouched, they are read by those who want them
  }
  for (size_t i = begin; i < end; ++i) {
    if (batch.begin(i)) mine.push_back(i);
  }
  if (mine.size() > 1) {
    try {
      read_together(batch, mine);
    } catch (const std::bad_alloc&) {
    }
  }
  for (const size_t position : mine) {
    if (batch.is_reading(position)) read_one(batch, position);
  }
}

void ReadBatch::Worker::read_together(ReadBatch& batch, const std::vector<size_t>& positions) {
  std::vector<Source::Wanted> wanted(positions.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].index = batch.indices_[positions[i]];
    wanted[i].bytes = batch.pool_.spare();
  }
  const uint64_t before = own_waits();
  batch.source_->read_together(wanted, ReadAhead::kLargest);
  const bool waited = own_waits() != before;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].read) continue;
    batch.pool_.hold(wanted[i].bytes.size());
    batch.finish(positions[i], File{State::kRead, waited, std::move(wanted[i].bytes), nullptr});
  }
}

void ReadBatch::Worker::read_one(ReadBatch& batch, size_t position) noexcept {
  File file;
  file.bytes = batch.pool_.spare();
  const uint64_t before = own_waits();
  try {
    const bool read = batch.source_->read_if(batch.indices_[position], file.bytes, batch.look_,
                                             ReadAhead::kLargest);
    file.state = read ? State::kRead : State::kOthers;
  } catch (const std::bad_alloc&) {
    file.state = State::kOthers;  // the decode thread says so, or has more luck
  } catch (...) {
    file.state = State::kRead;
    file.error = std::current_exception();
  }
  file.waited = own_waits() != before;
  if (file.state != State::kRead || file.error != nullptr) file.bytes.clear();
  batch.pool_.hold(file.bytes.size());
  batch.finish(position, std::move(file));
}

ReadAhead::ReadAhead() : PiecePool("fl-read") { spares_.reserve(kSpares); }

ReadAhead& ReadAhead::shared() { return per_process<ReadAhead>(); }

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
