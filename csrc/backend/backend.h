#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"

namespace fastloader {

// The contract between the pipeline and the code that moves memory. Two implementations, one
// conformance suite (tests/native/backend_conformance_test.cpp):
//
//  1. Streams and events are owned by exactly one unique_ptr. Work on a stream is FIFO.
//  2. `Stream::record` returns a value, Ticket{event, generation}. `Stream::wait` captures the
//     generation *when called*: a later record on the same event never extends the wait.
//  3. A ticket is done only after every task enqueued before its record has *finished*.
//     A default Ticket is done.
//  4. The first failure on a stream is sticky, names the call and the device, and is thrown by
//     `synchronize` and `check`. Behind work that has failed the device copies and computes nothing
//     more. Behind a call that it refused, it does: the caller asks `check` before it queues work
//     that relies on an earlier call. Threads that wait for a ticket wake.
//  5. Destroying a stream drains it. After process exit began, everything is leaked instead.
//     No destructor throws. Nothing here runs at import time.
//  6. `wrap_external` gives a non-owning stream for a handle made elsewhere (torch's current
//     stream). Handle 0 is the legacy default stream; on the host twin, whose "device" is this
//     CPU, that is the calling thread itself: waiting on it blocks the caller. CUDA's handle 2 is
//     the default stream of the thread that wraps it; on another thread, `wait` blocks the caller.
//  7. Allocations remember their device; every entry point selects the device it needs itself and
//     restores the caller's.
//  8. A kernel's body is one function of (parameters, thread index) in image/normalize/kernel.h
//     or image/normalize/augment_kernel.h, run by the CUDA grid and, over the same grid, by the
//     twin.
//
// The event of an outstanding ticket must outlive the ticket and must not be recorded again. The
// caller keeps that rule. The prefetcher has three events per slot; ring.h proves that none of them
// is recorded again too early.

/// A point in a stream's work that can be recorded many times; each time is a generation.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  virtual ~Event() = default;

  virtual bool done(uint64_t generation) const = 0;

  /// Blocks the calling thread, without spinning, until `generation` is done. Throws BackendError
  /// when the device failed.
  virtual void wait_host(uint64_t generation) = 0;
};

struct Ticket {
  Event* event = nullptr;
  uint64_t generation = 0;

  bool done() const { return event == nullptr || event->done(generation); }
  void wait_host() const {
    if (event != nullptr) event->wait_host(generation);
  }
};

/// Ordered asynchronous work on one device. One thread at a time may call it.
/// Functions ending in `_async` return once the work is queued. Like `record` and `wait` they throw
/// only for a misuse (InvalidArgument) and in a forked child; what the device refuses is kept for
/// `check` and `synchronize`. On CUDA a copy from or to host memory that is not pinned may block
/// until the stream has come to it.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// `src` is host memory; it must stay untouched until a ticket recorded later is done.
  virtual void copy_h2d_async(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_d2d_async(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_d2h_async(void* dst, const void* src, size_t bytes) = 0;
  /// `in` and `out` are device memory, each aligned to 16 bytes at least.
  virtual void normalize_async(const NormalizeSpec& spec, const void* in, void* out) = 0;
  /// The same with `records`, device memory too; they must pass validate_records(). `out` overlaps
  /// neither of the others: the kernel reads them as if nothing wrote to them.
  virtual void augment_async(const AugmentSpec& spec, const void* records, const void* in,
                             void* out) = 0;

  /// `event` belongs to the same device. Throws InvalidArgument on a stream that is being captured
  /// into a graph. A done ticket where the device refused the record: see `check`.
  virtual Ticket record(Event& event) = 0;
  /// The ticket may be another device's.
  virtual void wait(const Ticket& ticket) = 0;

  /// Blocks until everything queued so far has finished; throws the sticky error.
  virtual void synchronize() = 0;
  /// Throws the sticky error, if any, without blocking. The one call any thread may make.
  virtual void check() = 0;

  /// The value `wrap_external` of the same backend accepts. Never 0 for an owned stream.
  virtual uintptr_t handle() const = 0;
};

/// Page-aligned host memory for a ring slot, zero-filled at first.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  virtual ~HostBlock() = default;

  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
  /// True when the device can read it by DMA.
  virtual bool pinned() const = 0;
  /// Why `pinned()` is false, in words; empty when it is true.
  virtual const std::string& why_not_pinned() const = 0;
};

/// Device memory. The engine itself never makes any (torch owns the outputs); tests and
/// benchmarks do.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  virtual ~DeviceBlock() = default;

  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
  virtual int device() const = 0;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const char* name() const = 0;
  /// At least 1, or the backend would not have been opened.
  virtual int device_count() const = 0;
  /// The NUMA node at which the device is; -1 if that is not known.
  virtual int numa_node(int /*device*/) const { return -1; }

  /// Every native thread calls this once, before it touches the backend: selects the device for
  /// the thread and keeps its calls from invalidating a graph capture elsewhere in the process.
  virtual void attach_thread(int device) = 0;

  virtual std::unique_ptr<Stream> create_stream(int device) = 0;
  virtual std::unique_ptr<Stream> wrap_external(int device, uintptr_t handle) = 0;
  virtual std::unique_ptr<Event> create_event(int device) = 0;
  /// Private anonymous memory of exactly `bytes` (rounded up to pages), not inherited by forked
  /// children, on the device's NUMA node where there is one, pinned if the backend can. Failing to
  /// pin is not an error: the block says so. Throws BackendError when there is no memory.
  virtual std::unique_ptr<HostBlock> allocate_host(int device, size_t bytes) = 0;
  virtual std::unique_ptr<DeviceBlock> allocate_device(int device, size_t bytes) = 0;
};

}  // namespace fastloader
