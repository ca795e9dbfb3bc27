#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/gather.h"
#include "pipeline/piece_pool.h"

namespace fastloader {

/// A row that lies in a mapped file and cannot be read: that was cut off, or its disk fails.
struct UnreadRow {
  size_t leaf = 0;
  size_t position = 0;  ///< in its list
};

/// One batch of rows on its way. Its owner keeps sources and destinations alive until it is done or
/// cancelled. A piece is some rows of one array.
class GatherBatch : public PieceBatch {
 public:
  /// What a thread measured at the piece that it copied last.
  class Worker {
   public:
    void run(const GatherBatch& batch, size_t piece) noexcept;

   private:
    friend class GatherPool;

    int64_t nanoseconds_ = 0;
    std::optional<UnreadRow> unread_;
  };

  /// Throws InvalidArgument for a leaf without a list of rows.
  GatherBatch(std::vector<GatherLeaf> leaves, std::vector<std::vector<uint64_t>> lists);

  size_t pieces() const { return pieces_.size(); }

 private:
  friend class GatherPool;

  struct Piece {
    size_t leaf = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  const std::vector<GatherLeaf> leaves_;
  const std::vector<std::vector<uint64_t>> lists_;
  std::vector<Piece> pieces_;
  // Guarded by the pool's mutex: what the threads took to copy, the waiting one included, and the
  // first row that one of them could not read.
  int64_t nanoseconds_ = 0;
  std::optional<UnreadRow> unread_;
};

/// The gather threads of this process, shared by all its loaders. They begin batches in the order
/// in which they were submitted. A thread that waits for a batch copies pieces of it as well.
/// Cancelling waits for a piece's time at most.
class GatherPool final : public PiecePool<GatherBatch> {
 public:
  GatherPool() : PiecePool("fl-gather") {}
  ~GatherPool() { end(); }

  /// Copies the pieces that no thread has begun, which are all of a batch that was not submitted.
  /// Then waits for the pieces that others have begun. Returns false at the deadline. Throws Error
  /// for a batch that was left unfinished by a fork.
  bool wait(GatherBatch& batch, Clock::time_point deadline);
  /// One of the rows of a batch that is done which could not be read; nothing: all could.
  std::optional<UnreadRow> unread(const GatherBatch& batch) const;
  /// What copying has cost its threads so far, in nanoseconds.
  int64_t nanoseconds(const GatherBatch& batch) const;

 private:
  void ran_locked(GatherBatch& batch, size_t piece, Worker& worker) noexcept override;
};

}  // namespace fastloader
