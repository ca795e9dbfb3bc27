#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
  /// thread that is reading it. Returns nothing if none has begun, or it could not be read: then
  /// none begins any more, and the caller reads the file itself, and learns what is wrong. At most
  /// once for each position.
  std::optional<bool> take(size_t position, std::vector<uint8_t>& bytes);

  class Worker {
   public:
    void run(ReadBatch& batch, size_t piece) noexcept;

   private:
    static void read_one(ReadBatch& batch, size_t position) noexcept;
    static void read_together(ReadBatch& batch, const std::vector<size_t>& positions);
  };

 private:
  friend class ReadAhead;

  enum class State : uint8_t {
    kUntouched,
    kReading,
    kRead,    ///< its bytes are there
    kOthers,  ///< whoever takes it reads it
  };
  struct File {
    State state = State::kUntouched;
    bool waited = false;
    size_t held = 0;  ///< bytes of memory that the pool counts for it
    std::vector<uint8_t> bytes;
  };

  bool begin(size_t position);
  /// The file was read.
  void finish(size_t position, std::vector<uint8_t> bytes, bool waited) noexcept;
  /// It cannot be, here: whoever takes it reads it.
  void give_up(size_t position) noexcept;
  /// It was not: any thread may begin to read it.
  void let_others(size_t position) noexcept;

  ReadAhead& pool_;
  const std::shared_ptr<const Source> source_;
  const std::vector<uint64_t> indices_;
  const Source::Look look_;
  size_t together_ = 1;  // set by ReadAhead::submit
  std::mutex mutex_;     // guards files_
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

  /// As PiecePool's.
  void submit(const std::shared_ptr<ReadBatch>& batch);

  size_t threads() const;
  /// So many threads are enough for that many decode threads, of which each reads that many files
  /// at a time.
  static size_t threads_for(size_t decode_threads, size_t together);

  /// Memory, in bytes, of files that were read and not taken yet.
  size_t held() const;

  /// Threads begin no file while that many bytes wait to be taken. What they have begun comes on
  /// top: at most kLargest for each file.
  static constexpr int64_t kMostHeld = int64_t{64} << 20;
  /// A larger file is left to the decode thread that wants it.
  static constexpr size_t kLargest = size_t{8} << 20;

 private:
  friend class ReadBatch;

  size_t room_locked(ReadBatch& batch) override;
  void ran_locked(ReadBatch& /*batch*/, size_t /*piece*/, Worker& /*worker*/) noexcept override {}
  /// Memory for a file to come; empty if there is none.
  std::vector<uint8_t> spare() noexcept;
  /// A file was read into so many bytes of memory.
  void hold(size_t bytes) noexcept;
  /// Such memory was taken, or dropped. `spare` is memory for files to come.
  void let_go(size_t bytes, std::vector<uint8_t> spare) noexcept;

  // Guarded by the pool's mutex.
  int64_t held_ = 0;
  std::vector<std::vector<uint8_t>> spares_;
};

}  // namespace fastloader
