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
#include "image/draw_numbers.h"

namespace fastloader {
namespace {

/// Must be short enough to lie inside the std::string: there is no memory for more.
constexpr const char* kOutOfMemory = "out of memory";

using Failure = DecodeBatch::Failure;

/// Describes the exception that the thread handles, with which the sample failed.
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

}  // namespace

DecodeQuota::DecodeQuota(size_t threads, ReadingNeed::Mode reading)
    : threads_(threads), reading_(reading), counted_in_(fork_generation()) {
  if (threads == 0) throw InvalidArgument("a quota of no threads would never decode anything");
}

DecodeBatch::DecodeBatch(const std::shared_ptr<const ImageJob>& job,
                         std::shared_ptr<DecodeQuota> quota, std::vector<uint64_t> indices,
                         std::vector<uint64_t> seeds,
                         const std::function<Memory(size_t bytes)>& memory)
    : DecodeBatch(std::vector<View>{View{{job}, 0, nullptr, {}, {}}}, std::move(quota),
                  std::move(indices), Keys{{}, std::move(seeds), {}, {}}, memory) {}

DecodeBatch::DecodeBatch(std::vector<View> views, std::shared_ptr<DecodeQuota> quota,
                         std::vector<uint64_t> indices, Keys keys, Allocate memory)
    : views_(std::move(views)),
      memory_(std::move(memory)),
      quota_(std::move(quota)),
      indices_(std::move(indices)),
      keys_(std::move(keys)),
      sizes_(indices_.size()) {
  const size_t samples = indices_.size();
  if (views_.empty()) throw InvalidArgument("a batch of no views");
  if ((keys_.seeds.size() != 1 && keys_.seeds.size() != samples) ||
      (!keys_.samples.empty() && keys_.samples.size() != samples) ||
      (!keys_.kinds.empty() && keys_.kinds.size() != samples) ||
      (!keys_.numbers.empty() && keys_.numbers.size() != samples)) {
    throw InvalidArgument("a batch of " + std::to_string(samples) + " samples with " +
                          std::to_string(keys_.seeds.size()) + " seeds, " +
                          std::to_string(keys_.samples.size()) + " keys, " +
                          std::to_string(keys_.kinds.size()) + " kinds and " +
                          std::to_string(keys_.numbers.size()) + " numbers");
  }
  uint32_t most = 0;
  for (const uint32_t kind : keys_.kinds) most = std::max(most, kind);
  uint32_t last = 0;
  for (const uint32_t number : keys_.numbers) last = std::max(last, number);
  const Source& source = *job().source;
  for (const uint64_t index : indices_) {
    if (index >= source.size()) {
      throw InvalidArgument("sample " + std::to_string(index) + " of " +
                            std::to_string(source.size()));
    }
  }
  for (View& view : views_) {
    if (most >= view.jobs.size()) {
      throw InvalidArgument("a sample of kind " + std::to_string(most) + " in a view of " +
                            std::to_string(view.jobs.size()));
    }
    for (const auto& job : view.jobs) {
      if (job->source.get() != &source) {
        throw InvalidArgument("the views of a batch are of one source");
      }
      if (!job->makes_as(*view.jobs.front())) {
        throw InvalidArgument("the jobs of a view make pictures of one form");
      }
    }
    if (uint64_t{view.number} + last >= kMostPictures) {
      throw InvalidArgument("picture " + std::to_string(uint64_t{view.number} + last) +
                            " of a sample; " + std::to_string(kMostPictures) + " are the most");
    }
    if (view.jobs.front()->own_sizes) {
      view.own.resize(samples);
      continue;
    }
    if (!view.outs.empty()) {
      if (view.outs.size() != samples) {
        throw InvalidArgument("a view of " + std::to_string(view.outs.size()) +
                              " places in a batch of " + std::to_string(samples) + " samples");
      }
      continue;
    }
    const size_t bytes = view.jobs.front()->sample_bytes();
    if (samples > std::numeric_limits<size_t>::max() / std::max<size_t>(bytes, 1)) {
      throw std::bad_alloc();
    }
    view.memory = memory_(samples * bytes);
  }
  failures_.reserve(samples);  // a thread that has no memory has to be able to say so
  if (source.may_wait()) {
    reads_ = std::make_shared<ReadBatch>(ReadAhead::shared(), job().source, indices_,
                                         PictureDecoder::knows);
  }
}

void DecodeBatch::views_of(size_t position, std::vector<PictureView>& found,
                           std::optional<uint32_t> kind) {
  found.clear();
  const uint32_t own = keys_.kinds.empty() ? 0 : keys_.kinds[position];
  for (size_t i = 0; i < views_.size(); ++i) {
    View& view = views_[i];
    const uint32_t wanted = kind.value_or(own);
    if (wanted >= view.jobs.size()) {
      throw InvalidArgument("a sample of kind " + std::to_string(wanted) + " in a view of " +
                            std::to_string(view.jobs.size()));
    }
    PictureView& made = found.emplace_back();
    made.job = view.jobs[wanted].get();
    made.number = view.number + (keys_.numbers.empty() ? 0 : keys_.numbers[position]);
    if (view.own.empty()) {
      made.out = sample(position, i);
    } else {
      made.own = &view.own[position];
      made.allocate = &memory_;
    }
  }
}

DecodePool& DecodePool::shared() { return per_process<DecodePool>(); }

void DecodePool::submit(const std::shared_ptr<DecodeBatch>& batch) {
  // First: if that throws, nobody may be at the files, whose paths are the caller's.
  PiecePool::submit(batch);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (batch->quota_->reading_.ahead()) read_ahead_locked(batch);
}

void DecodePool::stop(DecodeBatch& batch) {
  PiecePool::stop(batch);
  if (batch.reads_ != nullptr && is_own(batch)) ReadAhead::shared().stop(*batch.reads_);
}

void DecodePool::cancel(DecodeBatch& batch) {
  stop(batch);  // before it waits for decode threads, which may wait for files
  PiecePool::cancel(batch);
  if (batch.reads_ != nullptr && is_own(batch)) ReadAhead::shared().cancel(*batch.reads_);
}

void DecodePool::read_ahead_locked(const std::shared_ptr<DecodeBatch>& batch) noexcept {
  if (batch->reads_ == nullptr || batch->reading_) return;
  batch->reading_ = true;  // once, whatever comes of it: without, decode threads read by themselves
  ReadAhead& pool = ReadAhead::shared();
  try {
    pool.grow(ReadAhead::threads_for(batch->quota_->threads_, batch->job().source->together()));
  } catch (const std::exception&) {  // the system gives no more threads
    if (pool.threads() == 0) return;
  }
  try {
    pool.submit(batch->reads_);
  } catch (const std::bad_alloc&) {
  }
}

void DecodePool::grow(size_t threads) {
  active_isa();  // a wrong FASTLOADER_FORCE_ISA is the caller's to hear of, not a thread's
  PiecePool::grow(threads);
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
  work_.notify_all();  // threads that found the quota taken
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

DecodePool::WaitStatus DecodePool::wait(const DecodeBatch& batch, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  require_own_locked(batch);
  const auto stopped = [&] { return batch.stopped().load(std::memory_order_relaxed); };
  finished_.wait_until(lock, deadline, [&] { return done_locked(batch) || stopped(); });
  if (done_locked(batch)) return WaitStatus::kDone;
  return stopped() ? WaitStatus::kCancelled : WaitStatus::kTimeout;
}

size_t DecodePool::scratch_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return scratch_bytes_;
}

StageTimes DecodePool::times(const DecodeQuota& quota) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return quota.times_;
}

size_t DecodePool::room_locked(DecodeBatch& batch) {
  DecodeQuota& quota = *batch.quota_;
  if (quota.counted_in_ != fork_generation()) {
    quota.working_ = 0;
    quota.counted_in_ = fork_generation();
  }
  return quota.threads_ > quota.working_ ? quota.threads_ - quota.working_ : 0;
}

void DecodePool::claimed_locked(DecodeBatch& batch) { ++batch.quota_->working_; }

void DecodePool::ran_locked(DecodeBatch& batch, size_t position, Worker& worker) noexcept {
  --batch.quota_->working_;
  batch.quota_->times_.add(worker.times_);
  batch.quota_->reading_.add(worker.times_.files, worker.times_.waited);
  scratch_bytes_ += worker.scratch_ - worker.counted_;
  worker.counted_ = worker.scratch_;
  if (!worker.failure_) return;
  const auto behind = std::find_if(batch.failures_.begin(), batch.failures_.end(),
                                   [&](const Failure& other) { return other.position > position; });
  batch.failures_.insert(behind, std::move(*worker.failure_));
}

void DecodePool::looking_locked(Worker& worker) {
  // Reading may have begun to wait since these batches were submitted.
  for (const std::shared_ptr<DecodeBatch>& batch : queue_) {
    if (batch->quota_->reading_.ahead()) read_ahead_locked(batch);
  }
  if (!low_priority_ || worker.lowered_) return;
  worker.lowered_ = true;
  lower_own_priority();  // a system call; once in a thread's life
}

void DecodeBatch::Worker::run(DecodeBatch& batch, size_t position) noexcept {
  failure_.reset();
  try {
    if (!decoder_) decoder_.emplace();
    batch.views_of(position, views_);
    decoder_->decode(batch.index(position), batch.key(position), views_, &batch.stopped(),
                     FileAhead{batch.reads_.get(), position});
    batch.sizes_[position] = decoder_->size();
    if (decoder_->large() > 0) {
      failure_ = Failure{position, Failure::Kind::kLarge,
                         words_of_large(decoder_->large(), batch.job().large_pixels)};
    }
  } catch (...) {
    failure_ = failure_at(position);
  }
  scratch_ = decoder_ ? decoder_->scratch_bytes() : 0;
  times_ = decoder_ ? decoder_->times() : StageTimes{};
}

}  // namespace fastloader
