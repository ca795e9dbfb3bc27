#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pipeline/piece_pool.h"
#include "pipeline/read_ahead.h"
#include "pipeline/reading_need.h"
#include "pipeline/sample_decoder.h"

namespace fastloader {

/// The share of one loader in the pool: how many threads may work for it at a time, at least one.
/// Lives through a fork: in the child no thread works for it.
class DecodeQuota {
 public:
  /// Throws InvalidArgument for 0.
  explicit DecodeQuota(size_t threads, ReadingNeed::Mode reading = ReadingNeed::Mode::kAsNeeded);

 private:
  friend class DecodePool;

  // Guarded by the pool's mutex.
  size_t threads_;
  size_t working_ = 0;
  StageTimes times_;
  ReadingNeed reading_;
  uint64_t counted_in_;  // the fork generation whose threads `working_` counts
};

/// One batch of pictures on its way. Made by the consumer, filled by the pool, read by the consumer
/// once `DecodePool::wait` says that it is done. A piece is a sample.
class DecodeBatch : public PieceBatch {
 public:
  /// What there is to say of a sample.
  struct Failure {
    enum class Kind : uint8_t {
      kFailed,   ///< it could not be finished; another decoder may know how
      kRefused,  ///< it could not be, and no other decoder is to try
      kLarge,    ///< it is finished, and so large that Python warns of it
    };
    size_t position = 0;
    Kind kind = Kind::kFailed;
    std::string reason;
  };

  /// Where the pixels go: recycled memory, or a slot of the ring. Held until the last thread has
  /// let go of the batch.
  using Memory = std::shared_ptr<std::byte>;

  /// What is made of each sample. One batch may make several, each into memory of its own. A view
  /// has a job for each kind of sample in the batch, all of which make pictures of one form.
  struct View {
    std::vector<std::shared_ptr<const ImageJob>> jobs;
    uint32_t number = 0;  ///< which picture of its sample it is
    Memory memory;
    std::vector<OwnPicture> own;  ///< of each sample, where pictures have sizes of their own
    /// Where each sample goes, in memory of the caller's, which outlives the batch; empty:
    /// `memory`.
    std::vector<std::byte*> outs;
  };

  /// What the pictures are drawn from.
  struct Keys {
    std::vector<uint64_t> samples;  ///< empty: the indices
    std::vector<uint64_t> seeds;    ///< one for each sample, or a single one for all
    std::vector<uint32_t> kinds;    ///< which of its views' jobs a sample has; empty: the first
    std::vector<uint32_t> numbers;  ///< added to each view's number; empty: nothing
  };

  /// The jobs of `views` have the source of the first one. `memory` is called once for each view,
  /// with the number of bytes, or on decode threads for each picture of a size of its own. Throws
  /// what it throws, InvalidArgument for another number of keys, for jobs of several sources or
  /// forms, for a kind that a view does not have, and for an index that the source does not have.
  DecodeBatch(std::vector<View> views, std::shared_ptr<DecodeQuota> quota,
              std::vector<uint64_t> indices, Keys keys, Allocate memory);
  /// One view of each sample, drawn by its index.
  DecodeBatch(const std::shared_ptr<const ImageJob>& job, std::shared_ptr<DecodeQuota> quota,
              std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
              const std::function<Memory(size_t bytes)>& memory);

  /// What a thread keeps from sample to sample, and what it has to say of the last one.
  class Worker {
   public:
    void run(DecodeBatch& batch, size_t position) noexcept;

   private:
    friend class DecodePool;

    // Made with the first sample. If making it fails, that sample fails.
    std::optional<SampleDecoder> decoder_;
    std::vector<PictureView> views_;
    std::optional<Failure> failure_;
    StageTimes times_;
    size_t scratch_ = 0;  // bytes that the decoder keeps
    // Guarded by the pool's mutex.
    size_t counted_ = 0;    // the thread's share of the pool's scratch_bytes_
    bool lowered_ = false;  // it yields to the process's other threads
  };

  const std::vector<View>& views() const { return views_; }
  /// The job of a view for the first kind of samples: those of the others have its form.
  const ImageJob& job(size_t view = 0) const { return *views_.at(view).jobs.front(); }
  size_t size() const { return indices_.size(); }
  size_t pieces() const { return indices_.size(); }
  uint64_t index(size_t position) const { return indices_[position]; }
  SampleKey key(size_t position) const {
    return {keys_.samples.empty() ? indices_[position] : keys_.samples[position],
            keys_.seeds.size() == 1 ? keys_.seeds[0] : keys_.seeds[position]};
  }
  /// Where a view of a sample goes, if they have one size. Throws InvalidArgument once its memory
  /// was released.
  std::byte* sample(size_t position, size_t view = 0) const {
    const View& wanted = views_.at(view);
    if (!wanted.outs.empty()) return wanted.outs.at(position);
    if (wanted.memory == nullptr) throw InvalidArgument("the batch's memory was taken already");
    return wanted.memory.get() + position * wanted.jobs.front()->sample_bytes();
  }
  /// The views of a sample, with where they go. `kind`: none is the sample's own. Throws as
  /// sample() does, and InvalidArgument for a kind that is not there.
  void views_of(size_t position, std::vector<PictureView>& found,
                std::optional<uint32_t> kind = {});
  /// The size of each sample's picture; zeros where the header could not be read. Valid once done.
  const std::vector<ImageSize>& sizes() const { return sizes_; }
  /// Notes the size of a picture that another decoder made. Of a batch that is done.
  void set_size(size_t position, const ImageSize& size) { sizes_.at(position) = size; }
  /// In the order of their positions. Valid once done.
  const std::vector<Failure>& failures() const { return failures_; }
  /// Hands over the memory of a view of a batch that is done, once: nullptr from then on.
  Memory release_memory(size_t view = 0) { return std::move(views_.at(view).memory); }
  /// A sample's picture of its own size, of a batch that is done; without memory if it failed.
  const OwnPicture& own(size_t position, size_t view = 0) const {
    return views_.at(view).own.at(position);
  }

 private:
  friend class DecodePool;

  std::vector<View> views_;  // `own` of a sample is written by the thread that has it
  const Allocate memory_;
  const std::shared_ptr<DecodeQuota> quota_;
  const std::vector<uint64_t> indices_;
  const Keys keys_;
  std::shared_ptr<ReadBatch> reads_;  // null: the source never waits
  bool reading_ = false;              // guarded by the pool's mutex: threads read ahead for it
  // Each written by the thread that has the sample; read once done.
  std::vector<ImageSize> sizes_;
  std::vector<Failure> failures_;  // guarded by the pool's mutex until done
};

/// The decode threads of this process, shared by all its loaders. They steal *samples*: the first
/// batch is done after batch / threads pictures, and no thread idles while any batch has pictures
/// left. The threads begin batches in the order in which they were submitted, within each loader's
/// quota. When a batch is stopped, a thread that decodes for it leaves after a few rows, and a
/// thread that reads leaves after its file, or after those that it reads together.
class DecodePool final : public PiecePool<DecodeBatch> {
 public:
  DecodePool() : PiecePool("fl-decode") {}
  ~DecodePool() { end(); }

  /// The pool of this process; a forked child gets one of its own. Never destroyed.
  static DecodePool& shared();

  /// As PiecePool's, for the files of the batch, too.
  void submit(const std::shared_ptr<DecodeBatch>& batch);
  void stop(DecodeBatch& batch);
  void cancel(DecodeBatch& batch);

  /// As PiecePool's. Throws what active_isa() throws, too.
  void grow(size_t threads);
  size_t threads() const;
  /// How many may work for a quota.
  size_t threads(const DecodeQuota& quota) const;
  /// Lets that many threads work for the quota from now on, and grows the pool to as many. If they
  /// are fewer than before, each surplus thread still finishes its sample. Throws what grow()
  /// throws, and InvalidArgument for 0.
  void set_threads(DecodeQuota& quota, size_t threads);
  /// All threads, also those to come, yield to the process's others from now on.
  void lower_priority();
  /// Processor time that all threads have used.
  int64_t cpu_ns() const;

  enum class WaitStatus : uint8_t { kDone, kCancelled, kTimeout };
  /// After kDone only the caller touches the batch. Throws Error for a batch that was left
  /// unfinished by a fork.
  WaitStatus wait(const DecodeBatch& batch, Clock::time_point deadline);

  /// What the threads have done for a quota so far.
  StageTimes times(const DecodeQuota& quota) const;
  /// What the threads keep from picture to picture: buffers of decoder and resizer.
  size_t scratch_bytes() const;

 private:
  size_t room_locked(DecodeBatch& batch) override;
  void claimed_locked(DecodeBatch& batch) override;
  void ran_locked(DecodeBatch& batch, size_t position, Worker& worker) noexcept override;
  void looking_locked(Worker& worker) override;

  void read_ahead_locked(const std::shared_ptr<DecodeBatch>& batch) noexcept;

  // Guarded by the pool's mutex, as are the quotas.
  bool low_priority_ = false;
  size_t scratch_bytes_ = 0;  // of all threads
};

}  // namespace fastloader
