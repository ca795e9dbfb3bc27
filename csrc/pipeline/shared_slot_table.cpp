#include "pipeline/shared_slot_table.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fork_watch.h"
#include "base/process.h"

namespace fastloader {
namespace {

constexpr size_t kAlignment = 64;
// Below this, giving memory back costs more than keeping it.
constexpr size_t kNotWorthIt = size_t{4} << 20;

size_t whole_pages(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

size_t checked_bytes(size_t slots, size_t slot_bytes) {
  if (slots == 0 || slot_bytes == 0) throw InvalidArgument("the table needs slots with bytes");
  const size_t whole = whole_pages(slot_bytes);
  if (whole < slot_bytes || whole > SIZE_MAX / 4 / slots) {
    throw InvalidArgument(std::to_string(slots) + " slots of " + std::to_string(slot_bytes) +
                          " bytes exceed the address space");
  }
  return whole;
}

}  // namespace

SlotMemory::SlotMemory(size_t slots, size_t slot_bytes)
    : slots_(slots),
      slot_bytes_(checked_bytes(slots, slot_bytes)),
      header_bytes_(whole_pages(slots * sizeof(std::atomic<uint64_t>))),
      mapping_(SharedMapping::create(header_bytes_ + slots_ * slot_bytes_)) {}

SlotMemory::SlotMemory(int fd, size_t slots, size_t slot_bytes)
    : slots_(slots),
      slot_bytes_(checked_bytes(slots, slot_bytes)),
      header_bytes_(whole_pages(slots * sizeof(std::atomic<uint64_t>))),
      mapping_(SharedMapping::attach(fd, header_bytes_ + slots_ * slot_bytes_)) {}

std::byte* SlotMemory::at(size_t slot, size_t offset, size_t bytes) const {
  if (slot >= slots_ || offset > slot_bytes_ || bytes > slot_bytes_ - offset) {
    throw InvalidArgument("no " + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                          " in slot " + std::to_string(slot) + " of " + std::to_string(slots_) +
                          " with " + std::to_string(slot_bytes_) + " bytes each");
  }
  return mapping_.data() + base(slot) + offset;
}

std::optional<size_t> SlotMemory::find(size_t slot, const void* address) const {
  const auto begin = reinterpret_cast<uintptr_t>(mapping_.data() + base(slot));
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  if (wanted < begin || wanted >= begin + slot_bytes_) return std::nullopt;
  return wanted - begin;
}

std::atomic<uint64_t>& SlotMemory::extent(size_t slot) const {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  // The kernel's zeros are valid atomics.
  return *std::launder(
      reinterpret_cast<std::atomic<uint64_t>*>(mapping_.data() + slot * sizeof(uint64_t)));
}

bool SlotMemory::populate(size_t slot, size_t offset, size_t bytes) const noexcept {
  return mapping_.populate(base(slot) + offset, bytes);
}

void SlotMemory::trim(size_t slot, size_t kept) const noexcept {
  kept = whole_pages(kept);
  if (kept >= slot_bytes_ || extent(slot).load(std::memory_order_relaxed) <= kept) return;
  mapping_.drop(base(slot) + kept, slot_bytes_ - kept);
  extent(slot).store(kept, std::memory_order_relaxed);
}

std::shared_ptr<SharedSlotTable> SharedSlotTable::create(size_t workers, size_t slots_per_worker,
                                                         size_t slot_bytes) {
  watch_forks();
  return std::shared_ptr<SharedSlotTable>(
      new SharedSlotTable(workers, slots_per_worker, slot_bytes));
}

SharedSlotTable::SharedSlotTable(size_t workers, size_t slots_per_worker, size_t slot_bytes)
    : slots_per_worker_(slots_per_worker),
      memory_(std::make_shared<SlotMemory>(workers * slots_per_worker, slot_bytes)),
      slots_(workers * slots_per_worker),
      born_in_(fork_generation()) {}

SharedSlotTable::~SharedSlotTable() {
  if (born_in_ != fork_generation()) return;
  // Children that inherited the mapping would keep its pages, which only those need that inherited
  // a tensor.
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!seen_by_child(slots_[i])) memory_->trim(i, 0);
  }
}

bool SharedSlotTable::seen_by_child(const Slot& slot) noexcept {
  return slot.fork_when_freed != slot.fork_when_leased &&
         forked_child_lives(slot.fork_when_leased, slot.fork_when_freed);
}

std::optional<size_t> SharedSlotTable::take(size_t worker) {
  if (worker >= workers()) {
    throw InvalidArgument("worker " + std::to_string(worker) + " of " + std::to_string(workers()));
  }
  for (size_t i = worker * slots_per_worker_; i < (worker + 1) * slots_per_worker_; ++i) {
    Slot& slot = slots_[i];
    int wanted = kFree;
    if (slot.state.load(std::memory_order_acquire) != kFree || seen_by_child(slot)) continue;
    if (slot.state.compare_exchange_strong(wanted, kWithWorker, std::memory_order_acq_rel)) {
      return i;
    }
  }
  return std::nullopt;
}

std::shared_ptr<SharedSlotTable::Lease> SharedSlotTable::receive(size_t slot) {
  if (slot >= slots_.size() || slots_[slot].state.load(std::memory_order_acquire) != kWithWorker) {
    throw Error("slot " + std::to_string(slot) + " arrived, but no worker has it");
  }
  slots_[slot].fork_when_leased = forks_begun();
  slots_[slot].state.store(kHeld, std::memory_order_release);
  return std::make_shared<Lease>(shared_from_this(), slot);
}

void SharedSlotTable::free(size_t slot) noexcept {
  slots_[slot].fork_when_freed = forks_begun();
  slots_[slot].state.store(kFree, std::memory_order_release);
}

void SharedSlotTable::reclaim() {
  for (Slot& slot : slots_) {
    int with_worker = kWithWorker;
    slot.state.compare_exchange_strong(with_worker, kFree, std::memory_order_acq_rel);
  }
}

size_t SharedSlotTable::touched_bytes() const {
  size_t sum = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    sum += memory_->extent(i).load(std::memory_order_relaxed);
  }
  return sum;
}

size_t SharedSlotTable::slots_held() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.state.load(std::memory_order_relaxed) == kHeld;
  }));
}

SharedSlotTable::Lease::Lease(std::shared_ptr<SharedSlotTable> table, size_t slot)
    : table_(std::move(table)), slot_(slot), born_in_(fork_generation()) {}

SharedSlotTable::Lease::~Lease() {
  if (born_in_ == fork_generation()) table_->free(slot_);
}

std::byte* SharedSlotTable::Lease::at(size_t offset, size_t bytes) const {
  return table_->memory_->at(slot_, offset, bytes);
}

std::shared_ptr<WorkerSlots> WorkerSlots::create(std::shared_ptr<SlotMemory> memory) {
  return std::shared_ptr<WorkerSlots>(new WorkerSlots(std::move(memory)));
}

WorkerSlots::WorkerSlots(std::shared_ptr<SlotMemory> memory)
    : memory_(std::move(memory)), slots_(memory_->slots()) {}

bool WorkerSlots::begin(size_t number) {
  (void)memory_->at(number, 0, 0);
  Slot& slot = slots_[number];
  if (slot.tensors.load(std::memory_order_acquire) != 0) return false;
  const size_t usual = usual_.load(std::memory_order_relaxed);
  const size_t most = std::max(2 * usual, kNotWorthIt);
  if (usual != 0 && memory_->extent(number).load(std::memory_order_relaxed) > most) {
    memory_->trim(number, usual);
    slot.present = std::min(slot.present, usual);
  }
  slot.used = 0;
  return true;
}

std::optional<size_t> WorkerSlots::collate(size_t number, size_t bytes) {
  (void)memory_->at(number, 0, 0);
  if (slots_[number].tensors.load(std::memory_order_acquire) == 0) slots_[number].used = 0;
  return place(number, bytes);
}

std::optional<size_t> WorkerSlots::place(size_t number, size_t bytes) {
  (void)memory_->at(number, 0, 0);
  Slot& slot = slots_[number];
  const size_t offset = (slot.used + kAlignment - 1) / kAlignment * kAlignment;
  if (offset > memory_->slot_bytes() || bytes > memory_->slot_bytes() - offset) return std::nullopt;
  const size_t end = offset + bytes;
  if (end > slot.present) {
    if (!memory_->populate(number, slot.present, end - slot.present)) return std::nullopt;
    slot.present = end;
  }
  slot.used = end;
  std::atomic<uint64_t>& extent = memory_->extent(number);
  if (extent.load(std::memory_order_relaxed) < slot.used) {
    extent.store(slot.used, std::memory_order_relaxed);
  }
  return offset;
}

void WorkerSlots::finish(size_t number) {
  (void)memory_->at(number, 0, 0);
  const size_t before = usual_.load(std::memory_order_relaxed);
  const size_t usual = std::max(slots_[number].used, before - before / 16);
  usual_.store(usual, std::memory_order_relaxed);
  heap_.keep_for(usual);
}

std::shared_ptr<void> WorkerSlots::hold(size_t number) {
  (void)memory_->at(number, 0, 0);
  std::atomic<int>& tensors = slots_[number].tensors;
  tensors.fetch_add(1, std::memory_order_relaxed);
  return {&tensors, [self = shared_from_this()](std::atomic<int>* count) {
            count->fetch_sub(1, std::memory_order_release);
          }};
}

}  // namespace fastloader
