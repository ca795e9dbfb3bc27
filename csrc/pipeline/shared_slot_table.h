#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/heap.h"
#include "base/shared_mapping.h"

namespace fastloader {

/// The memory of a table as every process sees it: for each worker process a few slots of one size.
/// Sparse, so that a slot may be far larger than the batches that come.
class SlotMemory {
 public:
  /// Throws InvalidArgument for sizes of zero, Error when the system refuses.
  SlotMemory(size_t slots, size_t slot_bytes);
  /// Maps the memory in another process. Takes the descriptor over.
  SlotMemory(int fd, size_t slots, size_t slot_bytes);

  size_t slots() const { return slots_; }
  size_t slot_bytes() const { return slot_bytes_; }
  int fd() const { return mapping_.fd(); }
  bool has_descriptor() const noexcept { return mapping_.has_descriptor(); }
  /// Throws InvalidArgument unless [offset, offset + bytes) lies in the slot.
  std::byte* at(size_t slot, size_t offset, size_t bytes) const;
  /// Offset of an address in a slot, if it lies there.
  std::optional<size_t> find(size_t slot, const void* address) const;
  /// Bytes of a slot that were written to since they were last given back to the system. Shared by
  /// all processes; written by the process that has the slot.
  std::atomic<uint64_t>& extent(size_t slot) const;
  /// False if the system has no memory for them.
  bool populate(size_t slot, size_t offset, size_t bytes) const noexcept;
  /// Gives back what lies beyond the first `kept` bytes.
  void trim(size_t slot, size_t kept) const noexcept;

 private:
  size_t base(size_t slot) const { return header_bytes_ + slot * slot_bytes_; }

  size_t slots_;
  size_t slot_bytes_;    // whole pages
  size_t header_bytes_;  // the extents come first
  SharedMapping mapping_;
};

/// The slots that worker processes collate into, from the consumer's side: which one is free, with
/// its worker, or under live tensors. The state lies in private memory, so a worker that dies in
/// the middle of anything leaves it true.
///
/// A slot belongs to one worker process for the table's life, so that the worker alone can know
/// that its own code still holds a tensor of an earlier batch.
class SharedSlotTable : public std::enable_shared_from_this<SharedSlotTable> {
 public:
  /// Keeps a slot from being used again. Shared by the tensors of a batch; the last one frees it,
  /// on any thread, without the GIL, also after the loader is gone. In a forked child it does
  /// nothing.
  class Lease {
   public:
    Lease(std::shared_ptr<SharedSlotTable> table, size_t slot);
    Lease(const Lease&) = delete;
    ~Lease();
    std::byte* at(size_t offset, size_t bytes) const;

   private:
    std::shared_ptr<SharedSlotTable> table_;
    size_t slot_;
    uint64_t born_in_;
  };

  /// Only through here: leases hold a shared_ptr to their table.
  static std::shared_ptr<SharedSlotTable> create(size_t workers, size_t slots_per_worker,
                                                 size_t slot_bytes);
  ~SharedSlotTable();

  /// A free slot for the worker to fill, the lowest first so that few are ever touched. One that
  /// was under live tensors at a fork is not free before the child has ended.
  std::optional<size_t> take(size_t worker);
  /// The worker has filled it. Throws Error unless the slot is with a worker.
  std::shared_ptr<Lease> receive(size_t slot);
  /// Frees the slots that were with workers. The caller has made sure that those processes are
  /// gone.
  void reclaim();

  size_t workers() const { return slots_.size() / slots_per_worker_; }
  size_t slots_per_worker() const { return slots_per_worker_; }
  const std::shared_ptr<SlotMemory>& memory() const { return memory_; }
  /// Bytes of memory behind all slots, and slots under live tensors now.
  size_t touched_bytes() const;
  size_t slots_held() const;

 private:
  enum State : int { kFree, kWithWorker, kHeld };

  struct Slot {
    // Partners: take, receive and reclaim on the consumer's threads, the last lease on any. Release
    // when freed, acquire when taken: the reads of the old tensors happen before the new writes,
    // which the worker makes after it was told through a pipe.
    std::atomic<int> state{kFree};
    // Written while kHeld begins and ends, read once it is kFree again: ordered by `state`.
    uint64_t fork_when_leased = 0;
    uint64_t fork_when_freed = 0;
  };

  SharedSlotTable(size_t workers, size_t slots_per_worker, size_t slot_bytes);
  void free(size_t slot) noexcept;
  static bool seen_by_child(const Slot& slot) noexcept;

  size_t slots_per_worker_;
  std::shared_ptr<SlotMemory> memory_;
  std::vector<Slot> slots_;
  uint64_t born_in_;
};

/// The worker's side: places tensors in a slot, one after the other.
class WorkerSlots : public std::enable_shared_from_this<WorkerSlots> {
 public:
  static std::shared_ptr<WorkerSlots> create(std::shared_ptr<SlotMemory> memory);

  /// Starts a batch in the slot, if none of this process's tensors lies there any more. Also gives
  /// memory back that only an unusually large batch had needed.
  bool begin(size_t slot);
  /// Returns room for a tensor that the caller then holds; nothing if the slot is too small or the
  /// system has no memory for it. Aligned for any element. Writes over the batch if no tensor on it
  /// is alive any more: a dataset may collate each sample, too.
  std::optional<size_t> collate(size_t slot, size_t bytes);
  /// Room for bytes that stay in the batch, behind what is there.
  std::optional<size_t> place(size_t slot, size_t bytes);
  /// The batch is complete. The heap keeps what the next ones need, by the largest of late.
  void finish(size_t slot);
  /// Returns an object for a tensor on the slot to hold, so that `begin` knows of the tensor.
  std::shared_ptr<void> hold(size_t slot);

  const SlotMemory& memory() const { return *memory_; }

 private:
  struct Slot {
    // Partner: the last tensor's deleter, on any thread. Release and acquire: its reads are over.
    std::atomic<int> tensors{0};
    size_t used = 0;     // of the batch being placed; only its placer touches it
    size_t present = 0;  // bytes that this process need not fault in any more
  };

  explicit WorkerSlots(std::shared_ptr<SlotMemory> memory);

  std::shared_ptr<SlotMemory> memory_;
  std::vector<Slot> slots_;
  // Bytes that a large batch needs, forgotten slowly. Partner: a batch that ends on another thread.
  // Relaxed: a figure that is one batch old will do.
  std::atomic<size_t> usual_{0};
  KeptHeap heap_;  // only `finish` touches it, on the thread that packs batches
};

}  // namespace fastloader
