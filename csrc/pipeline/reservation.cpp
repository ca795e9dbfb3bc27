#include "pipeline/reservation.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/trace.h"

namespace fastloader {

Reservation::Reservation(std::shared_ptr<Ring> ring, const Ring::Filling& filling)
    : ring_(std::move(ring)), filling_(filling), born_in_(fork_generation()) {}

Reservation::~Reservation() {
  if (ring_ == nullptr) return;
  if (born_in_ != fork_generation()) {
    // The ring's mutex may have been copied locked, and its memory is the parent's.
    (void)new std::shared_ptr<Ring>(std::move(ring_));
    return;
  }
  ring_->abandon(filling_);
}

void Reservation::check_held() const {
  if (ring_ == nullptr) throw InvalidArgument("the slot was committed already");
  if (born_in_ != fork_generation()) {
    throw Error("a slot that was reserved before this process was forked off is its parent's");
  }
}

size_t room_elsewhere(const BatchLayout& layout, const HeldLeaves& held) {
  size_t bytes = 0;
  for (const HeldLeaf& each : held) bytes += BatchLayout::room_of(layout.leaves()[each.leaf].bytes);
  return bytes;
}

bool Reservation::commit(const std::shared_ptr<const BatchLayout>& layout,
                         const std::vector<const void*>& leaves, HeldLeaves held) {
  check_held();
  if (layout == nullptr) throw InvalidArgument("a batch needs a layout");
  if (leaves.size() != layout->leaves().size()) {
    throw InvalidArgument(std::to_string(leaves.size()) + " addresses for a layout of " +
                          std::to_string(layout->leaves().size()) + " leaves");
  }
  const size_t bytes = layout->packed_bytes() - room_elsewhere(*layout, held);
  if (bytes > filling_.bytes) {
    throw InvalidArgument("a batch of " + std::to_string(bytes) +
                          " bytes in a slot that was reserved for " +
                          std::to_string(filling_.bytes));
  }
  for (const BatchLayout::Leaf& leaf : layout->leaves()) {
    if (leaf.augment) validate_records(*leaf.augment, leaves.back());
  }
  size_t copied = 0;
  size_t elsewhere = 0;  // of the leaves before
  auto next_held = held.begin();
  const trace::Span span("pack");
  Lap lap(times_stages());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const BatchLayout::Leaf& leaf = layout->leaves()[i];
    if (next_held != held.end() && next_held->leaf == i) {
      elsewhere += BatchLayout::room_of(leaf.bytes);
      ++next_held;
      continue;
    }
    std::byte* place = filling_.data + (leaf.offset - elsewhere);
    if (leaf.bytes == 0 || leaves[i] == place) continue;
    std::memcpy(place, leaves[i], leaf.bytes);
    copied += leaf.bytes;
  }
  const bool taken =
      ring_->commit(filling_, layout, copied, static_cast<double>(lap()) * 1e-9, std::move(held));
  ring_.reset();
  return taken;
}

bool Reservation::commit(EntryKind kind) {
  check_held();
  const bool taken = ring_->commit(filling_, kind);
  ring_.reset();
  return taken;
}

}  // namespace fastloader
