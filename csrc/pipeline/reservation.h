#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/ring.h"

namespace fastloader {

/// What the leaves that are `held` would take in a slot.
size_t room_elsewhere(const BatchLayout& layout, const HeldLeaves& held);

/// A slot in the making. All its writers share it, and it lives as long as one of them may write.
/// Gives the slot back if the last holder drops it without a commit. Keeps the ring's memory alive.
/// Belongs to one process: in a forked child it does nothing.
class Reservation {
 public:
  Reservation(std::shared_ptr<Ring> ring, const Ring::Filling& filling);
  /// Any thread.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* data() const { return filling_.data; }
  size_t bytes() const { return filling_.bytes; }

  /// Hands the slot over. Call it when no thread writes into it any more. `leaves` are host
  /// addresses, one per leaf; leaves at their place in the slot already are not copied, and those
  /// that are `held` stay where they are. Returns false if the epoch was cancelled meanwhile.
  /// Throws InvalidArgument for a batch larger than bytes(), or out of order, or after a commit.
  bool commit(const std::shared_ptr<const BatchLayout>& layout,
              const std::vector<const void*>& leaves, HeldLeaves held = {});
  /// The same with an error or the end in the batch's place.
  bool commit(EntryKind kind);

 private:
  void check_held() const;

  std::shared_ptr<Ring> ring_;  // null once committed
  const Ring::Filling filling_;
  const uint64_t born_in_;  // fork generation
};

}  // namespace fastloader
