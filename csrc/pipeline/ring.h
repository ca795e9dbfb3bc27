#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "pipeline/credit.h"
#include "pipeline/slot.h"

namespace fastloader {

/// The shared state between producer, prefetch thread, reaper and consumer: `depth` host slots, and
/// `depth` credits for device memory. It holds no thread and makes no device call, so every order
/// of events can be forced in a test.
///
/// Batches are numbered by 64-bit sequence numbers that never restart; batch `seq` lives in slot
/// `seq % max_depth` and uses credit `seq % max_depth`, where `max_depth` is what the depth may
/// become. At any time
///     delivered <= issued <= filled <= reserved <= filled + depth,   issued - delivered <= depth,
/// the last since a credit for `seq` is accepted only once `seq - depth` has been delivered. What
/// was reserved or issued before `lower` may exceed the depth until it has been delivered, but
/// never `max_depth`.
///
/// This is also why a slot's three events can be used for every batch in it. They are recorded for
/// `seq` only after the reaper has freed the slot of `seq - max_depth`, which it does when that
/// batch's last ticket is done. The kernels are behind the copy, and the copy is behind the record
/// ahead of it. So the other two tickets are done as well, and no stream waits for them any more.
/// The consumer's stream has captured the last ticket by then: the batch was delivered, or its
/// epoch was cancelled before the next one was opened. Where the device has refused the reaper's
/// wait, or the order between the two streams, a slot may be freed before its work is done. But the
/// ring has failed by then, and a failed ring fills no slot and issues nothing.
///
/// Where `max_depth` exceeds the depth, a slot that is reserved takes over the memory of a free
/// one, so that no more than `depth` slots hold any.
///
/// A producer may have several slots in the making, [filled, reserved), and commits them in order.
/// The caller of `begin_fill` owns the memory of a FILLING slot until it commits or abandons the
/// slot. The end of the epoch does not take the memory away.
///
/// An *epoch* is one pass of a producer. Cancelling it never waits for the producer: a late
/// producer finds its epoch number stale and is told so.
class Ring {
 public:
  using Clock = std::chrono::steady_clock;
  using Allocate = std::function<std::unique_ptr<HostBlock>(size_t bytes)>;

  enum class WaitStatus : uint8_t { kOk, kOver, kTimeout };
  enum class Arrival : uint8_t { kBatch, kError, kEnd, kNeedsCredit, kTimeout, kOver };

  /// Stands for the number of the epoch that is open at the time of the call.
  static constexpr uint64_t kPresent = 0;

  /// One batch in the hands of the prefetch thread. No other thread touches its slot or credit.
  struct Issue {
    uint64_t seq = 0;
    size_t index = 0;  ///< seq % max_depth
    const std::byte* data = nullptr;
    const HeldLeaves* held = nullptr;
    std::shared_ptr<const BatchLayout> layout;
    Credit* credit = nullptr;
  };

  struct Reap {
    size_t index = 0;
    Ticket done;  ///< behind the batch's last kernel
  };

  /// A batch without a fitting credit.
  struct Uncredited {
    uint64_t seq = 0;
    bool filled = false;  ///< already in the ring, so that its layout is known
  };

  struct Stats {
    uint64_t filled = 0;
    uint64_t delivered = 0;
    uint64_t bytes = 0;         ///< of the filled batches, packed
    uint64_t copied = 0;        ///< bytes that were not made in their slot but copied into it
    uint64_t slot_growths = 0;  ///< times a slot was made again because a batch outgrew it
    uint64_t slot_bytes = 0;    ///< host memory in all slots now
    bool pinned = true;
    std::string why_not_pinned;  ///< of the first slot that could not be pinned
    double producer_wait_s = 0;  ///< spent in begin_fill: the ring was full
    double consumer_wait_s = 0;  ///< spent in wait_arrival: the ring was empty
    double pack_s = 0;           ///< copying into slots
    double device_s = 0;         ///< the device at copying and normalising, one batch or several
    double device_wait_s = 0;    ///< at nothing, since a copy waited for the consumer's stream
    uint64_t asked = 0;          ///< times the consumer came for a batch,
    uint64_t found = 0;          ///< and how many it found in the ring then, in all
    uint64_t ready_last = 0;     ///< those of them, the last time, that it need not wait for
  };

  /// `max_slot_bytes` is the most that one batch may take; `max_depth`, unless 0, the depth that
  /// `deepen` may come to. Throws InvalidArgument for depth 0, or one above `max_depth`.
  Ring(size_t depth, size_t max_slot_bytes, Allocate allocate, size_t max_depth = 0);

  size_t depth() const;
  /// The most that the depth may become.
  size_t max_depth() const { return slots_.size(); }
  /// From now on there are `depth` slots and credits; nothing happens unless that is more than now.
  /// Any thread. Throws InvalidArgument above `max_depth`.
  void deepen(size_t depth);
  /// From now on at most `depth` slots are taken and credits used; nothing happens unless that is
  /// fewer than now. What is in the ring already stays there. Any thread. Throws InvalidArgument
  /// for 0.
  void lower(size_t depth);

  struct Epoch {
    uint64_t number = 0;     ///< from 1
    uint64_t first_seq = 0;  ///< of its first batch
  };

  /// Cancels what is left of the epoch before. A consumer with outstanding credits calls `cancel`
  /// first, since only `cancel` returns the ticket to wait for.
  Epoch open_epoch();

  // --- producer: one thread per epoch -----------------------------------------------------------

  /// A slot in the making.
  struct Filling {
    uint64_t epoch = 0;
    uint64_t seq = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;  ///< as asked for
  };

  /// Waits until the next slot is free and holds at least `bytes`. The caller then owns `*filling`
  /// and commits or abandons it exactly once, from any thread. Throws InvalidArgument if `bytes`
  /// and what lies `elsewhere` of the batch exceed the limit, and what the allocator throws; then
  /// the slot is free again, and the epoch goes on.
  WaitStatus begin_fill(uint64_t epoch, size_t bytes, Clock::time_point deadline, Filling* filling,
                        size_t elsewhere = 0);
  /// Hands over a batch. False when the epoch was cancelled meanwhile. Throws InvalidArgument, and
  /// changes nothing, unless this is the oldest slot in the making. `copied` bytes in `seconds` are
  /// for the statistics. `held` is let go once the device has read it.
  bool commit(const Filling& filling, std::shared_ptr<const BatchLayout> layout, size_t copied = 0,
              double seconds = 0, HeldLeaves held = {});
  /// The same with an error or the end in the batch's place.
  bool commit(const Filling& filling, EntryKind kind);
  /// Gives the slot back. Slots that were reserved behind it in the same epoch cannot be committed
  /// any more. Abandon them too, before the next one is reserved.
  void abandon(const Filling& filling);
  /// begin_fill and commit of an error or the end, which need no memory.
  WaitStatus put(uint64_t epoch, EntryKind kind, Clock::time_point deadline);

  // --- prefetch thread --------------------------------------------------------------------------

  /// Blocks until the next batch is filled and has a fitting credit. Errors and ends are passed on
  /// to the consumer on the way. False when closed.
  bool wait_issue(Issue* issue);
  /// Ends the issue, also a failed one (after `fail`, with any ticket).
  void issued(const Issue& issue, Ticket done);

  // --- reaper -----------------------------------------------------------------------------------

  /// Blocks until a slot has been issued, in order. False when closed and nothing is left.
  bool wait_reap(Reap* reap);
  /// The seconds are for the statistics: at work, and waiting for the consumer's stream before.
  void reaped(const Reap& reap, double device_s = 0, double device_wait_s = 0);
  /// Consumer: blocks until the reaper has done with all that was issued.
  void wait_reaped();

  // --- consumer: one thread at a time -----------------------------------------------------------

  /// Batches in the window [delivered, delivered + depth) that lack a credit, or have one for
  /// another layout. With `ahead`, also those not filled yet.
  std::vector<Uncredited> uncredited(bool ahead) const;
  /// Takes the credit for `seq` back, if there is one, so that a new one may be made: the prefetch
  /// thread cannot start the batch meanwhile. False when an error or the end has taken the batch's
  /// place, which a consumer that looks ahead cannot know: no credit is needed then. Throws
  /// InvalidArgument when `seq` is outside the window or already issued.
  bool withdraw_credit(uint64_t seq);
  /// Throws InvalidArgument as `withdraw_credit` does, and when the credit does not suit its
  /// layout. Ignored where an error or the end has taken the batch's place.
  void give_credit(uint64_t seq, const Credit& credit);
  /// Waits for the next arrival in order. kBatch sets `*ticket`. kOver: `epoch` was cancelled
  /// before the call, or by another thread meanwhile; later arrivals are not for this consumer.
  /// Throws the sticky failure.
  Arrival wait_arrival(Clock::time_point deadline, Ticket* ticket, uint64_t epoch = kPresent);
  /// The arrival was taken: the window moves on, and a credit that an error left unused is dropped.
  /// Call it after the consumer's stream has captured the ticket. Throws InvalidArgument when
  /// nothing has arrived.
  void delivered();
  /// Ends the epoch. Waits only while the prefetch thread is in the middle of one batch. Returns
  /// the newest ticket of a batch that was issued but never delivered (a done ticket if none).
  Ticket cancel();

  /// Sticky: from now on `wait_arrival` throws BackendError(what), producers are told kOver.
  void fail(const std::string& what);
  /// Whether `fail` was called. Any thread.
  bool failed() const;
  /// Sticky: every waiting thread wakes, nothing more is accepted. Any thread, any number of times.
  void close();

  Stats stats() const;

  /// How far the epoch has come, in sequence numbers. A caller that was interrupted by a signal
  /// right behind one of the calls above learns here whether that call has been made.
  struct Progress {
    uint64_t delivered = 0;  ///< of the batch to be delivered next
    uint64_t filled = 0;     ///< of the batch to be committed next
  };
  Progress progress() const;

 private:
  struct Window {
    Credit credit;
    Ticket ready;  ///< set while the batch is issued and not delivered
    EntryKind kind = EntryKind::kBatch;
  };

  Slot& slot(uint64_t seq) { return slots_[seq % slots_.size()]; }
  const Slot& slot(uint64_t seq) const { return slots_[seq % slots_.size()]; }
  Window& window(uint64_t seq) { return windows_[seq % windows_.size()]; }
  const Window& window(uint64_t seq) const { return windows_[seq % windows_.size()]; }
  bool over(uint64_t epoch) const { return closed_ || !failure_.empty() || epoch != epoch_; }
  bool credit_fits(uint64_t seq) const;
  bool wants_credit(uint64_t seq) const;
  WaitStatus reserve_locked(std::unique_lock<std::mutex>& lock, uint64_t epoch,
                            Clock::time_point deadline, Filling* filling);
  bool commit_locked(const Filling& filling, EntryKind kind,
                     std::shared_ptr<const BatchLayout> layout, size_t copied);
  void abandon_locked(const Filling& filling);
  void grow(Slot& slot, size_t bytes);
  void take_memory_locked(Slot& slot, size_t bytes);
  /// `dropped` is to be let go outside of the lock.
  Ticket cancel_locked(std::unique_lock<std::mutex>& lock, HeldLeaves* dropped);
  void free_locked(Slot& slot);

  const size_t max_slot_bytes_;
  const Allocate allocate_;

  mutable std::mutex mutex_;  // guards everything below, slot contents and issued credits excepted
  std::condition_variable slot_freed_;  // producer waits, and wait_reaped()
  std::condition_variable issuable_;    // prefetch thread waits
  std::condition_variable reapable_;    // reaper waits
  std::condition_variable arrived_;     // consumer waits, and cancel() for the end of an issue
  std::vector<Slot> slots_;
  std::vector<Window> windows_;
  std::vector<Reap> reap_queue_;  // first in, first out; reserved for `max_depth` entries
  size_t depth_;
  size_t used_ = 0;  // slots that are not free
  uint64_t epoch_ = 0;
  uint64_t reserved_ = 0;   // next sequence number to be filled
  uint64_t filled_ = 0;     // next to commit
  uint64_t issued_ = 0;     // next to issue
  uint64_t delivered_ = 0;  // next to deliver
  bool issuing_ = false;
  bool asking_ = false;  // the consumer has been counted as `asked` for its next batch
  int cancelling_ = 0;   // above 0: the prefetch thread starts nothing new
  bool closed_ = false;
  std::string failure_;
  Stats stats_;
};

}  // namespace fastloader
