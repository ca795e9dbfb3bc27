#include "pipeline/prefetcher.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/trace.h"

namespace fastloader {
namespace {

int checked_device(const Backend& backend, int device) {
  if (device < 0 || device >= backend.device_count()) {
    throw InvalidArgument(std::string("device ") + backend.name() + ":" + std::to_string(device) +
                          " does not exist; this machine has " +
                          std::to_string(backend.device_count()));
  }
  return device;
}

}  // namespace

Prefetcher::Prefetcher(Backend& backend, int device, size_t depth, size_t max_slot_bytes,
                       size_t max_depth)
    : backend_(backend),
      device_(checked_device(backend, device)),
      born_in_(fork_generation()),
      memory_(PinnedPool::create(
          [&backend, device](size_t bytes) { return backend.allocate_host(device, bytes); })),
      ring_(std::make_shared<Ring>(
          depth, max_slot_bytes,
          [&backend, device](size_t bytes) { return backend.allocate_host(device, bytes); },
          max_depth)),
      copy_stream_(backend.create_stream(device)),
      kernel_stream_(backend.create_stream(device)) {
  for (size_t i = 0; i < ring_->max_depth(); ++i) {
    events_.push_back(SlotEvents{backend_.create_event(device_), backend_.create_event(device_),
                                 backend_.create_event(device_)});
    writable_.push_back(Writable{backend_.create_event(device_), Wrapped{}, Ticket{}});
  }
  starts_.resize(ring_->max_depth());
  reaper_ = std::make_unique<Thread>("fl-reaper", [this] { reap_loop(); });
  try {
    prefetch_ = std::make_unique<Thread>("fl-prefetch", [this] { prefetch_loop(); });
  } catch (...) {
    ring_->close();  // or joining the reaper would never end
    throw;
  }
}

Prefetcher::~Prefetcher() {
  if (born_in_ != fork_generation()) {
    // The threads are not in this process, and the streams, the events and the slots are the
    // parent's: closing any of them here could hang or touch the parent's device state. Even the
    // ring's condition variables would wait for the threads that wait on them in the parent.
    (void)new std::shared_ptr<Ring>(std::move(ring_));
    (void)prefetch_.release();
    (void)reaper_.release();
    (void)copy_stream_.release();
    (void)kernel_stream_.release();
    for (auto& each : events_) {
      (void)each.started.release();
      (void)each.copied.release();
      (void)each.done.release();
    }
    for (auto& each : writable_) (void)each.event.release();
    for (auto& each : spare_) (void)each.event.release();
    return;
  }
  close();
}

void Prefetcher::close() {
  if (born_in_ != fork_generation()) return;
  ring_->close();
  const std::lock_guard<std::mutex> lock(close_mutex_);
  if (prefetch_) prefetch_->join();
  if (reaper_) reaper_->join();
  for (Stream* stream : {copy_stream_.get(), kernel_stream_.get()}) {
    try {
      stream->synchronize();
    } catch (const std::exception&) {
      // Already sticky in the ring; closing is what the caller wants now.
    }
  }
}

Ring::WaitStatus Prefetcher::reserve(uint64_t epoch, size_t bytes, Clock::time_point deadline,
                                     std::shared_ptr<Reservation>* place) {
  const trace::Span span("wait for a slot");
  Ring::Filling filling;
  const Ring::WaitStatus waited = ring_->begin_fill(epoch, bytes, deadline, &filling);
  if (waited == Ring::WaitStatus::kOk) *place = std::make_shared<Reservation>(ring_, filling);
  return waited;
}

Ring::WaitStatus Prefetcher::push(uint64_t epoch, const std::shared_ptr<const BatchLayout>& layout,
                                  const std::vector<const void*>& leaves,
                                  Clock::time_point deadline) {
  if (layout == nullptr) throw InvalidArgument("push: a batch needs a layout");
  HeldLeaves held;
  for (size_t i = 0; i < std::min(leaves.size(), layout->leaves().size()); ++i) {
    auto memory = memory_->holder(leaves[i], layout->leaves()[i].bytes);
    if (memory != nullptr) held.push_back({i, std::move(memory)});
  }
  const size_t elsewhere = room_elsewhere(*layout, held);
  Ring::Filling filling;
  Ring::WaitStatus waited;
  {
    const trace::Span span("wait for a slot");
    waited =
        ring_->begin_fill(epoch, layout->packed_bytes() - elsewhere, deadline, &filling, elsewhere);
  }
  if (waited != Ring::WaitStatus::kOk) return waited;
  return Reservation(ring_, filling).commit(layout, leaves, std::move(held))
             ? Ring::WaitStatus::kOk
             : Ring::WaitStatus::kOver;
}

const Prefetcher::Wrapped& Prefetcher::consumer_stream(uintptr_t handle) {
  Wrapped wanted{handle, std::this_thread::get_id(), nullptr};
  if (consumer_.stream == nullptr || !consumer_.is(wanted)) {
    wanted.stream = backend_.wrap_external(device_, handle);
    consumer_ = std::move(wanted);
  }
  return consumer_;
}

std::vector<std::shared_ptr<Stream>> Prefetcher::consumer_streams(uintptr_t handle) {
  std::vector<std::shared_ptr<Stream>> all{consumer_stream(handle).stream};
  for (const Writable& each : writable_) {
    if (each.on.stream == nullptr || each.on.handle != handle || each.on.is(consumer_)) continue;
    if (std::find(all.begin(), all.end(), each.on.stream) == all.end()) {
      all.push_back(each.on.stream);
    }
  }
  return all;
}

Prefetcher::Writable& Prefetcher::writable(uint64_t seq, const Wrapped& stream) {
  Writable& mine = writable_[seq % writable_.size()];
  // Records on one stream are done in order, so its event can be used again at once. Another stream
  // may overtake the old one while the copy stream still waits for the old one's ticket.
  if (!mine.on.is(stream) && !mine.last.done()) {
    auto free = std::find_if(spare_.begin(), spare_.end(), [&stream](const Writable& each) {
      return each.on.is(stream) || each.last.done();
    });
    if (free == spare_.end()) {
      free = spare_.insert(free, Writable{backend_.create_event(device_), stream, Ticket{}});
    }
    std::swap(mine, *free);
  }
  return mine;
}

void Prefetcher::give_credit(uint64_t seq, std::shared_ptr<const BatchLayout> layout,
                             const std::vector<void*>& outputs, void* staging, uintptr_t stream) {
  // First of all: the event may be recorded again only when no stream can be waiting for it.
  if (!ring_->withdraw_credit(seq)) return;
  credit_.layout = std::move(layout);
  credit_.outputs.assign(outputs.begin(), outputs.end());
  credit_.staging = staging;
  const Wrapped& consumer = consumer_stream(stream);
  Writable& since = writable(seq, consumer);
  since.last = consumer.stream->record(*since.event);
  since.on = consumer;
  require(*consumer.stream);  // without a record, the memory may be in use for as long as it likes
  credit_.writable = since.last;
  ring_->give_credit(seq, credit_);
}

void Prefetcher::deliver(const Ticket& ticket, uintptr_t stream) {
  Stream& consumer = *consumer_stream(stream).stream;
  consumer.wait(ticket);
  require(consumer);  // a wait that was refused orders nothing
  // On the twin the wait blocked until the work ended, so that a failure of this very batch is told
  // here; on a GPU it is told by a later batch, or by torch's next synchronisation.
  require(*copy_stream_);
  require(*kernel_stream_);
  ring_->delivered();
}

void Prefetcher::cancel(const std::vector<uintptr_t>& streams) {
  const Ticket newest = ring_->cancel();
  bool ordered = !untold_;
  for (const uintptr_t handle : streams) {
    // Memory goes back to the stream it was offered on, which may be another thread's.
    for (const auto& consumer : consumer_streams(handle)) {
      consumer->wait(newest);
      try {
        require(*consumer);
      } catch (const std::exception& error) {
        log_warning(std::string("at the end of an epoch: ") + error.what());
        ordered = false;
      }
    }
  }
  if (ordered) return;
  // No stream waits for the work that is under way, so this thread does: the memory goes back now.
  bool waited = true;
  for (Stream* stream : {copy_stream_.get(), kernel_stream_.get()}) {
    waited = attempt([&] { stream->synchronize(); }) && waited;
  }
  // On a thread whose context is broken every call fails. The reaper has a context of its own, and
  // its waits end with the device's work or fail, so that this one ends as well.
  if (!waited) ring_->wait_reaped();
}

bool Prefetcher::failed() {
  try {
    // The reaper may not have come to tell the ring yet.
    require(*copy_stream_);
    require(*kernel_stream_);
  } catch (const std::exception&) {
    return true;
  }
  return ring_->failed();
}

template <typename Body>
bool Prefetcher::attempt(Body body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    ring_->fail(error.what());
    return false;
  }
}

void Prefetcher::require(Stream& stream) {
  try {
    stream.check();
  } catch (const std::exception& error) {
    ring_->fail(error.what());
    throw;
  }
}

void Prefetcher::issue(const Ring::Issue& work) {
  const bool copied = attempt([&] { copy(work); });
  // Also after a failure: some of the copies may be queued, and the consumer must be able to wait
  // for them before it frees the memory. The ticket behind the kernels will stand for them, too.
  const bool joined = attempt([&] {
    kernel_stream_->wait(copy_stream_->record(*events_[work.index].copied));
    copy_stream_->check();
    kernel_stream_->check();
  });
  // The kernels take the records in the staging buffer for indices.
  if (copied && joined) attempt([&] { run_kernels(work); });
  if (!joined) untold_ = true;
}

void Prefetcher::copy(const Ring::Issue& work) {
  const Credit& credit = *work.credit;
  copy_stream_->wait(credit.writable);
  copy_stream_->check();  // a wait that was refused orders nothing: the memory may be in use
  if (times_stages()) {
    starts_[work.index].ticket = copy_stream_->record(*events_[work.index].started);
  }
  const auto& leaves = work.layout->leaves();
  auto* staging = static_cast<std::byte*>(credit.staging);
  auto held = work.held->begin();
  const auto is_held = [&](size_t i) { return held != work.held->end() && held->leaf == i; };
  size_t elsewhere = 0;  // what the leaves before would have taken in the slot
  for (size_t i = 0; i < leaves.size();) {
    const BatchLayout::Leaf& first = leaves[i];
    void* const out = first.direct ? credit.outputs[i] : staging + first.staged;
    const void* from = work.data + (first.offset - elsewhere);
    size_t bytes = first.bytes;
    if (is_held(i)) {
      from = held->memory.get();
      elsewhere += BatchLayout::room_of(first.bytes);
      ++held;
      ++i;
    } else if (first.direct) {
      ++i;
    } else {
      // One copy up to the next leaf that is direct or held, or to the end.
      for (; i < leaves.size() && !leaves[i].direct && !is_held(i); ++i) {
        bytes = leaves[i].staged + leaves[i].bytes - first.staged;
      }
    }
    if (bytes > 0) copy_stream_->copy_h2d_async(out, from, bytes);
  }
}

void Prefetcher::run_kernels(const Ring::Issue& work) {
  if (work.layout->staging_bytes() == 0) return;
  const Credit& credit = *work.credit;
  const auto& leaves = work.layout->leaves();
  auto* staging = static_cast<std::byte*>(credit.staging);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const BatchLayout::Leaf& leaf = leaves[i];
    if (leaf.bytes == 0 || leaf.direct || leaf.records) continue;
    if (leaf.augment) {
      kernel_stream_->augment_async(*leaf.augment, staging + leaves.back().staged,
                                    staging + leaf.staged, credit.outputs[i]);
    } else if (leaf.normalize) {
      kernel_stream_->normalize_async(*leaf.normalize, staging + leaf.staged, credit.outputs[i]);
    } else {
      kernel_stream_->copy_d2d_async(credit.outputs[i], staging + leaf.staged, leaf.bytes);
    }
  }
}

void Prefetcher::prefetch_loop() {
  attempt([&] { backend_.attach_thread(device_); });
  Ring::Issue work;
  while (ring_->wait_issue(&work)) {
    const trace::Span span("issue");
    starts_[work.index] = Start{Ticket{}, now_ns()};
    issue(work);
    Ticket done;
    try {
      done = kernel_stream_->record(*events_[work.index].done);
      kernel_stream_->check();
    } catch (const std::exception& error) {
      ring_->fail(error.what());
    }
    if (done.event == nullptr) untold_ = true;
    ring_->issued(work, done);
  }
}

void Prefetcher::reap_loop() {
  attempt([&] { backend_.attach_thread(device_); });
  Ring::Reap reap;
  // When the batch before was done. What the device did of this batch until then is time of that
  // one: the copy of the one goes on beside the kernels of the other, and no moment counts twice.
  int64_t before = 0;
  while (ring_->wait_reap(&reap)) {
    const Start& start = starts_[reap.index];
    const int64_t since = std::max(start.issued, before);
    attempt([&] { start.ticket.wait_host(); });
    const int64_t begun = std::max(since, now_ns());
    // Also after a failure of the first wait, or the slot would be free while its copy reads it.
    attempt([&] {
      reap.done.wait_host();
      copy_stream_->check();
      kernel_stream_->check();
    });
    before = std::max(begun, now_ns());
    trace::record("wait for the consumer's stream", since, begun);
    trace::record("copy and normalise", begun, before);
    ring_->reaped(reap, static_cast<double>(before - begun) * 1e-9,
                  static_cast<double>(begun - since) * 1e-9);
  }
}

}  // namespace fastloader
