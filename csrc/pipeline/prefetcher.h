#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/thread.h"
#include "pipeline/pinned_pool.h"
#include "pipeline/reservation.h"
#include "pipeline/ring.h"

namespace fastloader {

/// Moves batches from host slots into device memory that the consumer owns.
///
/// Two threads, two streams. The prefetch thread takes filled slots in order. On the *copy stream*
/// it waits for the credit to be writable and copies. On the *kernel stream* it waits for the copy,
/// normalises, takes the other leaves apart and records a ticket. So the next batch crosses the bus
/// while this one is normalised. The thread never waits for the device. The reaper waits for the
/// tickets, in order, and frees the slots. The consumer never blocks on the device: its stream
/// waits for the ticket.
///
/// Producer and consumer calls come from one thread each (they may be the same thread); `fail`-like
/// events surface in `wait_arrival`. In a forked child the object is inert: nothing may be called
/// but `close`, which does nothing there, and the destructor, which leaks what it cannot close.
class Prefetcher {
 public:
  using Clock = Ring::Clock;

  /// `backend` outlives the prefetcher and its reservations. Starts both threads. `max_depth`: see
  /// Ring. Throws InvalidArgument for a device that does not exist, BackendError when the device
  /// refuses.
  Prefetcher(Backend& backend, int device, size_t depth, size_t max_slot_bytes,
             size_t max_depth = 0);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The states and waits; see ring.h for what producer and consumer may call.
  Ring& ring() { return *ring_; }
  size_t depth() const { return ring_->depth(); }

  /// Producer: takes the next slot, with room for `bytes`. Several may be in the making; they are
  /// committed in the order in which they were reserved.
  Ring::WaitStatus reserve(uint64_t epoch, size_t bytes, Clock::time_point deadline,
                           std::shared_ptr<Reservation>* place);
  /// Producer: copies one batch into the next slot. `leaves` are host addresses, one per leaf. What
  /// lies in `memory()` is not copied: the device reads it there, so it must not change any more.
  Ring::WaitStatus push(uint64_t epoch, const std::shared_ptr<const BatchLayout>& layout,
                        const std::vector<const void*>& leaves, Clock::time_point deadline);
  /// Where a batch may be made that has no slot yet. `backend` outlives who calls it.
  const std::shared_ptr<PinnedPool>& memory() const { return memory_; }

  /// Consumer: offers device memory for batch `seq`, in place of an earlier offer if there was one.
  /// Earlier uses of that memory must end at the present point of `stream`.
  void give_credit(uint64_t seq, std::shared_ptr<const BatchLayout> layout,
                   const std::vector<void*>& outputs, void* staging, uintptr_t stream);
  /// Consumer: makes `stream` wait for the batch that `wait_arrival` announced (kBatch), and moves
  /// on. Throws BackendError if the device is known to have failed.
  void deliver(const Ticket& ticket, uintptr_t stream);
  /// Consumer: ends the epoch. Work that is already queued may still write into undelivered
  /// credits, and each of `streams` waits for that work. Give all streams on which the credits were
  /// made: their memory goes back there.
  void cancel(const std::vector<uintptr_t>& streams);

  /// Whether the device has refused or failed anything so far: it serves no other epoch then. Any
  /// thread.
  bool failed();

  /// Idempotent, any thread. Wakes every waiting thread, joins both threads, drains both streams.
  void close();

 private:
  /// A stream of the consumer's, as the thread wrapped it: one handle may be another stream on each
  /// thread.
  struct Wrapped {
    uintptr_t handle = 0;
    std::thread::id thread;
    std::shared_ptr<Stream> stream;
    bool is(const Wrapped& other) const { return handle == other.handle && thread == other.thread; }
  };

  /// An event for the `writable` tickets of credits.
  struct Writable {
    std::unique_ptr<Event> event;
    Wrapped on;  // the stream it was last recorded on
    Ticket last;
  };

  struct SlotEvents {
    std::unique_ptr<Event> started;  // on the copy stream, before the copy
    std::unique_ptr<Event> copied;   // on the copy stream, behind it
    std::unique_ptr<Event> done;     // on the kernel stream, behind the kernels
  };

  /// When the batch in a slot was begun, for the statistics. The prefetch thread writes it, the
  /// reaper reads it. The ring's mutex, under which the slot changes hands, orders the two.
  struct Start {
    Ticket ticket;
    int64_t issued = 0;  // now_ns()
  };

  void prefetch_loop();
  void reap_loop();
  /// Queues one batch. The kernel stream is then behind all of its work.
  void issue(const Ring::Issue& work);
  void copy(const Ring::Issue& work);
  void run_kernels(const Ring::Issue& work);
  /// Runs `body`. False if it throws, after which the ring has failed with that.
  template <typename Body>
  bool attempt(Body body);
  /// Throws the stream's sticky error, after which the ring has failed with it.
  void require(Stream& stream);
  /// The stream that `handle` means on this thread.
  const Wrapped& consumer_stream(uintptr_t handle);
  /// The streams that it may have meant where a credit was made, and means here.
  std::vector<std::shared_ptr<Stream>> consumer_streams(uintptr_t handle);
  Writable& writable(uint64_t seq, const Wrapped& stream);

  Backend& backend_;
  const int device_;
  const uint64_t born_in_;
  std::shared_ptr<PinnedPool> memory_;
  std::shared_ptr<Ring> ring_;  // shared with reservations; a forked child leaks it
  std::unique_ptr<Stream> copy_stream_;
  std::unique_ptr<Stream> kernel_stream_;
  std::vector<SlotEvents> events_;  // one per slot
  std::vector<Start> starts_;
  // Whether a batch was issued whose end no ticket is sure to tell. The prefetch thread sets it
  // before Ring::issued, the consumer reads it behind Ring::cancel: the ring's mutex orders the
  // two.
  bool untold_ = false;
  std::vector<Writable> writable_;  // one per credit, recorded on the consumer's
  std::vector<Writable> spare_;     // displaced when the consumer changed its stream
  Wrapped consumer_;                // the last one: mostly there is only one
  Credit credit_;                   // consumer's scratch, so that no call allocates
  std::mutex close_mutex_;          // guards nothing else than that one thread at a time closes
  // Last, so that they are joined before anything they use is gone.
  std::unique_ptr<Thread> reaper_;
  std::unique_ptr<Thread> prefetch_;
};

}  // namespace fastloader
