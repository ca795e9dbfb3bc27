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

bool Reservation::commit(const std::shared_ptr<const BatchLayout>& layout,
                         const std::vector<const void*>& leaves) {
  check_held();
  if (layout == nullptr) throw InvalidArgument("a batch needs a layout");
  if (leaves.size() != layout->leaves().size()) {
    throw InvalidArgument(std::to_string(leaves.size()) + " addresses for a layout of " +
                          std::to_string(layout->leaves().size()) + " leaves");
  }
  if (layout->packed_bytes() > filling_.bytes) {
    throw InvalidArgument("a batch of " + std::to_string(layout->packed_bytes()) +
                          " bytes in a slot that was reserved for " +
                          std::to_string(filling_.bytes));
  }
  for (const BatchLayout::Leaf& leaf : layout->leaves()) {
    if (leaf.augment) validate_records(*leaf.augment, leaves.back());
  }
  size_t copied = 0;
  const trace::Span span("pack");
  Lap lap(times_stages());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const BatchLayout::Leaf& leaf = layout->leaves()[i];
    std::byte* place = filling_.data + leaf.offset;
    if (leaf.bytes == 0 || leaves[i] == place) continue;
    std::memcpy(place, leaves[i], leaf.bytes);
    copied += leaf.bytes;
  }
  const bool taken = ring_->commit(filling_, layout, copied, static_cast<double>(lap()) * 1e-9);
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
