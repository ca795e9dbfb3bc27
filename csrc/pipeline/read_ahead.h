#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pipeline/piece_pool.h"
#include "source/source.h"

namespace fastloader {

class ReadAhead;

/// The files of one batch, on their way into memory. A piece is as many files as are best read
/// together.
class ReadBatch : public PieceBatch {
 public:
  /// `pool` is the one that it will be submitted to, if it is.
  ReadBatch(ReadAhead& pool, std::shared_ptr<const Source> source, std::vector<uint64_t> indices,
            Source::Look look);
  ~ReadBatch();

  size_t pieces() const { return (files_.size() + together_ - 1) / together_; }

  /// Puts the file at `position` into `bytes`, and says whether reading it had to wait. Waits for a
  /// thread that is reading it. Returns nothing if none has begun: then none begins any more, and
  /// the caller reads the file itself. Throws what reading threw. At most once for each position.
  std::optional<bool> take(size_t position, std::vector<uint8_t>& bytes);

  class Worker {
   public:
    void run(ReadBatch& batch, size_t piece) noexcept;

   private:
    void read_one(ReadBatch& batch, size_t position) noexcept;
    void read_together(ReadBatch& batch, const std::vector<size_t>& positions);
  };

 private:
  friend class ReadAhead;

  enum class State : uint8_t {
    kUntouched,
    kReading,
    kRead,    ///< its bytes are there, or the error
    kOthers,  ///< whoever takes it reads it
  };
  struct File {
    State state = State::kUntouched;
    bool waited = false;
    std::vector<uint8_t> bytes;
    std::exception_ptr error;
  };

  bool begin(size_t position);
  bool is_reading(size_t position);
  void finish(size_t position, File file) noexcept;

  ReadAhead& pool_;
  const std::shared_ptr<const Source> source_;
  const std::vector<uint64_t> indices_;
  const Source::Look look_;
  const size_t together_;
  std::mutex mutex_;  // guards files_
  std::condition_variable read_;
  std::vector<File> files_;
};

/// Threads that read files before decode threads ask for them. They do nothing but wait, most of
/// the time, so there are more of them than processors: a network file system, or a cold disk,
/// answers many questions at a time as fast as one.
class ReadAhead final : public PiecePool<ReadBatch> {
 public:
  ReadAhead();
  ~ReadAhead() { end(); }

  /// The pool of this process; a forked child gets one of its own. Never destroyed.
  static ReadAhead& shared();

  /// So many threads are enough for that many decode threads, of which each reads that many files
  /// at a time.
  static size_t threads_for(size_t decode_threads, size_t together);

  /// Bytes that were read and not taken yet.
  size_t held() const;

  /// Threads begin no file while that many bytes wait to be taken. What they have begun comes on
  /// top: at most kLargest for each.
  static constexpr int64_t kMostHeld = int64_t{64} << 20;
  /// A larger file is left to the decode thread that wants it.
  static constexpr size_t kLargest = size_t{8} << 20;

 private:
  friend class ReadBatch;

  size_t room_locked(ReadBatch& batch) override;
  void ran_locked(ReadBatch& /*batch*/, size_t /*piece*/, Worker& /*worker*/) noexcept override {}
  /// Memory for a file to come; empty if there is none.
  std::vector<uint8_t> spare() noexcept;
  /// A file of so many bytes was read.
  void hold(size_t bytes) noexcept;
  /// Bytes that were read are taken, or dropped. `spare` is memory for files to come.
  void let_go(size_t bytes, std::vector<uint8_t> spare) noexcept;

  // Guarded by the pool's mutex.
  int64_t held_ = 0;
  std::vector<std::vector<uint8_t>> spares_;
};

}  // namespace fastloader
