#include "pipeline/ring.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

double seconds_since(Ring::Clock::time_point start) {
  return std::chrono::duration<double>(Ring::Clock::now() - start).count();
}

}  // namespace

Ring::Ring(size_t depth, size_t max_slot_bytes, Allocate allocate, size_t max_depth)
    : max_slot_bytes_(max_slot_bytes),
      allocate_(std::move(allocate)),
      slots_(max_depth == 0 ? depth : max_depth),
      windows_(slots_.size()),
      depth_(depth) {
  if (depth == 0) throw InvalidArgument("depth must be at least 1, got 0");
  if (depth > slots_.size()) {
    throw InvalidArgument("depth " + std::to_string(depth) + " is above the most it may become, " +
                          std::to_string(slots_.size()));
  }
  reap_queue_.reserve(slots_.size());
}

size_t Ring::depth() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return depth_;
}

void Ring::deepen(size_t depth) {
  if (depth > slots_.size()) {
    throw InvalidArgument("the ring was made for a depth of up to " +
                          std::to_string(slots_.size()) + ", not " + std::to_string(depth));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (depth <= depth_) return;
  depth_ = depth;
  slot_freed_.notify_all();
  issuable_.notify_all();
}

void Ring::lower(size_t depth) {
  if (depth == 0) throw InvalidArgument("depth must be at least 1, got 0");
  const std::lock_guard<std::mutex> lock(mutex_);
  depth_ = std::min(depth_, depth);
}

Ring::Epoch Ring::open_epoch() {
  HeldLeaves dropped;
  std::unique_lock<std::mutex> lock(mutex_);
  cancel_locked(lock, &dropped);
  return Epoch{epoch_, filled_};
}

Ring::WaitStatus Ring::reserve_locked(std::unique_lock<std::mutex>& lock, uint64_t epoch,
                                      Clock::time_point deadline, Filling* filling) {
  const auto start = Clock::now();
  // The next slot in turn may still be in the making for a cancelled epoch.
  const bool woke = slot_freed_.wait_until(lock, deadline, [&] {
    return over(epoch) || (used_ < depth_ && slot(reserved_).state == SlotState::kFree);
  });
  stats_.producer_wait_s += seconds_since(start);
  if (over(epoch)) return WaitStatus::kOver;
  if (!woke) return WaitStatus::kTimeout;
  *filling = Filling{epoch, reserved_, nullptr, 0};
  slot(reserved_).state = SlotState::kFilling;
  ++used_;
  ++reserved_;
  return WaitStatus::kOk;
}

Ring::WaitStatus Ring::begin_fill(uint64_t epoch, size_t bytes, Clock::time_point deadline,
                                  Filling* filling, size_t elsewhere) {
  if (bytes > max_slot_bytes_ || elsewhere > max_slot_bytes_ - bytes) {
    throw InvalidArgument("a batch needs " + std::to_string(bytes + elsewhere) +
                          " bytes, but one slot of the ring may hold at most " +
                          std::to_string(max_slot_bytes_) +
                          " bytes; use a smaller batch_size or depth");
  }
  Filling mine;
  std::unique_lock<std::mutex> lock(mutex_);
  const WaitStatus waited = reserve_locked(lock, epoch, deadline, &mine);
  if (waited != WaitStatus::kOk) return waited;
  Slot& next = slot(mine.seq);
  take_memory_locked(next, bytes);
  if (next.memory == nullptr || next.memory->bytes() < bytes) {
    // Mapping and pinning take milliseconds; the FILLING state alone protects the slot meanwhile.
    lock.unlock();
    try {
      grow(next, bytes);
    } catch (...) {
      abandon(mine);
      throw;
    }
    lock.lock();
    // A stale producer must not write into a slot that a new epoch already waits for.
    if (over(epoch)) {
      abandon_locked(mine);
      return WaitStatus::kOver;
    }
  }
  mine.data = static_cast<std::byte*>(next.memory->data());
  mine.bytes = bytes;
  *filling = mine;
  return WaitStatus::kOk;
}

void Ring::take_memory_locked(Slot& slot, size_t bytes) {
  if (slot.memory != nullptr) return;
  size_t holding = 0;
  Slot* best = nullptr;
  for (Slot& each : slots_) {
    if (&each == &slot) continue;
    // A late producer of a cancelled epoch may be exchanging the memory of such a slot right now.
    const bool filling = each.state == SlotState::kFilling;
    if (filling || each.memory != nullptr) ++holding;
    if (each.state != SlotState::kFree || each.memory == nullptr) continue;
    const bool fits = each.memory->bytes() >= bytes;
    if (best == nullptr || (fits && best->memory->bytes() < bytes)) best = &each;
  }
  if (holding >= depth_ && best != nullptr) slot.memory = std::move(best->memory);
}

void Ring::grow(Slot& slot, size_t bytes) {
  const bool grown = slot.memory != nullptr;
  // Exact at first, since most loaders never change their batch size; with some air once sizes
  // prove to vary, or every slightly larger batch would pin anew.
  const size_t wanted = grown ? std::min(max_slot_bytes_, bytes + bytes / 4) : bytes;
  const size_t had = grown ? slot.memory->bytes() : 0;
  slot.memory.reset();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats_.slot_bytes -= had;
  }
  slot.memory = allocate_(wanted);
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.slot_bytes += slot.memory->bytes();
  if (grown) ++stats_.slot_growths;
  if (!slot.memory->pinned() && stats_.pinned) {
    stats_.pinned = false;
    stats_.why_not_pinned = slot.memory->why_not_pinned();
  }
}

bool Ring::commit(const Filling& filling, std::shared_ptr<const BatchLayout> layout, size_t copied,
                  double seconds, HeldLeaves held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.pack_s += seconds;
  const bool taken = commit_locked(filling, EntryKind::kBatch, std::move(layout), copied);
  if (taken) slot(filling.seq).held = std::move(held);
  return taken;
}

bool Ring::commit(const Filling& filling, EntryKind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return commit_locked(filling, kind, nullptr, 0);
}

bool Ring::commit_locked(const Filling& filling, EntryKind kind,
                         std::shared_ptr<const BatchLayout> layout, size_t copied) {
  if (over(filling.epoch)) {
    abandon_locked(filling);
    return false;
  }
  if (filling.seq != filled_) {
    throw InvalidArgument("batch " + std::to_string(filling.seq) +
                          " cannot be committed, the next one is " + std::to_string(filled_));
  }
  if (layout != nullptr) {
    stats_.bytes += layout->packed_bytes();
    stats_.copied += copied;
    ++stats_.filled;
  }
  Slot& mine = slot(filled_);
  mine.state = SlotState::kFilled;
  mine.kind = kind;
  mine.layout = std::move(layout);
  ++filled_;
  issuable_.notify_one();
  arrived_.notify_all();
  return true;
}

void Ring::abandon(const Filling& filling) {
  const std::lock_guard<std::mutex> lock(mutex_);
  abandon_locked(filling);
}

void Ring::abandon_locked(const Filling& filling) {
  free_locked(slot(filling.seq));
  // Another epoch has the sequence numbers of a cancelled one by now, but not the slot.
  if (filling.epoch != epoch_) return;
  while (reserved_ > filled_ && slot(reserved_ - 1).state == SlotState::kFree) --reserved_;
}

Ring::WaitStatus Ring::put(uint64_t epoch, EntryKind kind, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  Filling place;
  const WaitStatus waited = reserve_locked(lock, epoch, deadline, &place);
  if (waited != WaitStatus::kOk) return waited;
  try {
    commit_locked(place, kind, nullptr, 0);
  } catch (...) {  // something before it is still in the making
    abandon_locked(place);
    throw;
  }
  return WaitStatus::kOk;
}

bool Ring::credit_fits(uint64_t seq) const {
  return seq < delivered_ + depth_ && window(seq).credit.layout != nullptr &&
         window(seq).credit.layout == slot(seq).layout;
}

bool Ring::wait_issue(Issue* issue) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    issuable_.wait(lock, [&] {
      if (closed_) return true;
      if (!failure_.empty() || cancelling_ > 0 || issued_ == filled_) return false;
      // An error needs no credit, but its place in the window must be free.
      return slot(issued_).kind == EntryKind::kBatch ? credit_fits(issued_)
                                                     : issued_ < delivered_ + depth_;
    });
    if (closed_) return false;
    Slot& next = slot(issued_);
    Window& place = window(issued_);
    place.kind = next.kind;
    if (next.kind != EntryKind::kBatch) {
      free_locked(next);
      ++issued_;
      arrived_.notify_all();
      continue;
    }
    next.state = SlotState::kIssuing;
    issuing_ = true;
    issue->seq = issued_;
    issue->index = issued_ % slots_.size();
    issue->data = static_cast<const std::byte*>(next.memory->data());
    issue->held = &next.held;
    issue->layout = next.layout;
    issue->credit = &place.credit;
    return true;
  }
}

void Ring::issued(const Issue& issue, Ticket done) {
  const std::lock_guard<std::mutex> lock(mutex_);
  slots_[issue.index].state = SlotState::kIssued;
  window(issue.seq).ready = done;
  reap_queue_.push_back(Reap{issue.index, done});
  ++issued_;
  issuing_ = false;
  reapable_.notify_one();
  arrived_.notify_all();
}

bool Ring::wait_reap(Reap* reap) {
  std::unique_lock<std::mutex> lock(mutex_);
  // A batch that is being issued while the ring closes will still be queued here.
  reapable_.wait(lock, [&] { return (closed_ && !issuing_) || !reap_queue_.empty(); });
  if (reap_queue_.empty()) return false;
  *reap = reap_queue_.front();
  reap_queue_.erase(reap_queue_.begin());
  return true;
}

void Ring::reaped(const Reap& reap, double device_s, double device_wait_s) {
  HeldLeaves read;  // let go outside of the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.device_s += device_s;
  stats_.device_wait_s += device_wait_s;
  // After a failure the device may be reading still, as it may read the slots: see the header.
  if (failure_.empty()) read.swap(slots_[reap.index].held);
  free_locked(slots_[reap.index]);
}

void Ring::wait_reaped() {
  std::unique_lock<std::mutex> lock(mutex_);
  slot_freed_.wait(lock, [&] {
    return std::none_of(slots_.begin(), slots_.end(),
                        [](const Slot& each) { return each.state == SlotState::kIssued; });
  });
}

std::vector<Ring::Uncredited> Ring::uncredited(bool ahead) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Uncredited> missing;
  for (uint64_t seq = issued_ + (issuing_ ? 1 : 0); seq < delivered_ + depth_; ++seq) {
    if (seq < filled_) {
      if (slot(seq).kind == EntryKind::kBatch && !credit_fits(seq)) {
        missing.push_back({seq, true});
      }
    } else if (ahead && window(seq).credit.layout == nullptr) {
      missing.push_back({seq, false});
    }
  }
  return missing;
}

bool Ring::wants_credit(uint64_t seq) const {
  const bool in_window = seq >= delivered_ && seq < delivered_ + depth_;
  if (in_window && seq < issued_ && window(seq).kind != EntryKind::kBatch) return false;
  if (!in_window || seq < issued_ + (issuing_ ? 1 : 0)) {
    throw InvalidArgument("no credit is wanted for batch " + std::to_string(seq));
  }
  return true;
}

bool Ring::withdraw_credit(uint64_t seq) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!wants_credit(seq)) return false;
  window(seq).credit.layout = nullptr;
  return true;
}

void Ring::give_credit(uint64_t seq, const Credit& credit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!wants_credit(seq)) return;
  if (credit.layout == nullptr || credit.outputs.size() != credit.layout->leaves().size()) {
    throw InvalidArgument("a credit needs a layout and one output per leaf of it");
  }
  if (credit.layout->staging_bytes() > 0 && credit.staging == nullptr) {
    throw InvalidArgument("a credit for this layout needs a staging buffer");
  }
  Credit& mine = window(seq).credit;
  // The layout last: it is what makes a credit, and copying the outputs may throw.
  mine.layout = nullptr;
  mine.outputs = credit.outputs;
  mine.staging = credit.staging;
  mine.writable = credit.writable;
  mine.layout = credit.layout;
  issuable_.notify_one();
}

Ring::Arrival Ring::wait_arrival(Clock::time_point deadline, Ticket* ticket, uint64_t epoch) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (epoch == kPresent) epoch = epoch_;
  // A closed or failed ring says so itself, below.
  const auto cancelled = [&] { return epoch != epoch_ && !closed_ && failure_.empty(); };
  if (cancelled()) return Arrival::kOver;
  const auto start = Clock::now();
  if (!asking_) {  // it comes again after a timeout, and with a credit
    asking_ = true;
    ++stats_.asked;
    stats_.found += filled_ - delivered_;
    stats_.ready_last = issued_ - delivered_;
  }
  const auto needs_credit = [&] {
    return issued_ == delivered_ && !issuing_ && issued_ < filled_ &&
           slot(issued_).kind == EntryKind::kBatch && !credit_fits(issued_);
  };
  const bool woke = arrived_.wait_until(lock, deadline, [&] {
    return closed_ || !failure_.empty() || epoch != epoch_ || delivered_ < issued_ ||
           needs_credit();
  });
  stats_.consumer_wait_s += seconds_since(start);
  if (cancelled()) return Arrival::kOver;
  if (!failure_.empty()) throw BackendError(failure_);
  if (closed_) throw Error("the loader was closed while a batch was being waited for");
  if (!woke) return Arrival::kTimeout;
  if (delivered_ == issued_) return Arrival::kNeedsCredit;
  const Window& place = window(delivered_);
  switch (place.kind) {
    case EntryKind::kError:
      return Arrival::kError;
    case EntryKind::kEnd:
      return Arrival::kEnd;
    case EntryKind::kBatch:
      break;
  }
  *ticket = place.ready;
  return Arrival::kBatch;
}

void Ring::delivered() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (delivered_ == issued_) throw InvalidArgument("nothing has arrived that could be delivered");
  asking_ = false;
  Window& place = window(delivered_);
  if (place.kind == EntryKind::kBatch) ++stats_.delivered;
  // An error may have left this credit unused. Drop it all the same: the consumer made it for this
  // number, not for the batch that takes its place.
  place.credit.layout = nullptr;
  place.ready = Ticket{};
  ++delivered_;
  // An error or end behind this batch may have waited for its place in the window.
  issuable_.notify_one();
}

Ticket Ring::cancel() {
  HeldLeaves dropped;
  std::unique_lock<std::mutex> lock(mutex_);
  return cancel_locked(lock, &dropped);
}

Ticket Ring::cancel_locked(std::unique_lock<std::mutex>& lock, HeldLeaves* dropped) {
  ++epoch_;
  asking_ = false;
  // The old producer may be waiting for a slot that only the device will free, and the old consumer
  // for a batch that will not come.
  slot_freed_.notify_all();
  arrived_.notify_all();
  ++cancelling_;
  arrived_.wait(lock, [&] { return !issuing_; });
  --cancelling_;
  // Tickets of one stream are done in order: waiting for the newest waits for all.
  Ticket newest;
  for (uint64_t seq = delivered_; seq < issued_; ++seq) {
    if (window(seq).ready.event != nullptr) newest = window(seq).ready;
  }
  for (uint64_t seq = issued_; seq < filled_; ++seq) {
    dropped->splice(dropped->end(), slot(seq).held);
    free_locked(slot(seq));
  }
  for (Window& place : windows_) {
    place.credit.layout = nullptr;
    place.ready = Ticket{};
  }
  issued_ = filled_;
  delivered_ = filled_;
  reserved_ = filled_;  // FILLING slots come back when their holders let go
  return newest;
}

void Ring::free_locked(Slot& slot) {
  if (slot.state != SlotState::kFree) --used_;
  slot.state = SlotState::kFree;
  slot.layout = nullptr;
  slot_freed_.notify_all();
}

void Ring::fail(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The first failure is the cause; later ones are its consequences.
  if (failure_.empty()) failure_ = what.empty() ? "the device failed without saying why" : what;
  slot_freed_.notify_all();
  issuable_.notify_all();
  arrived_.notify_all();
}

bool Ring::failed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !failure_.empty();
}

void Ring::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  slot_freed_.notify_all();
  issuable_.notify_all();
  reapable_.notify_all();
  arrived_.notify_all();
}

Ring::Progress Ring::progress() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Progress{delivered_, filled_};
}

Ring::Stats Ring::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace fastloader
