#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "pipeline/batch_layout.h"

namespace fastloader {

/// FREE -> FILLING -> FILLED -> ISSUING -> ISSUED -> FREE. Each arrow has one owner:
/// the producer fills, the prefetch thread issues, the reaper frees. An error or the end of the
/// epoch goes FILLED -> FREE as soon as the prefetch thread has passed it on; a cancelled epoch
/// frees FILLED slots at once, FILLING ones when their holders let go, ISSUED ones by the reaper.
enum class SlotState : uint8_t { kFree, kFilling, kFilled, kIssuing, kIssued };

/// What takes a batch's place in the order.
enum class EntryKind : uint8_t { kBatch, kError, kEnd };

/// A leaf of a batch that lies in no slot. The device reads it where it is.
struct HeldLeaf {
  size_t leaf = 0;
  std::shared_ptr<const std::byte> memory;
};

/// Those of one batch, in the layout's order. Its other leaves lie in the slot as in the layout,
/// less the room of those before that are held. A list, because cancelling takes them out of the
/// slots and may not allocate.
using HeldLeaves = std::list<HeldLeaf>;

/// Host memory for one batch. The ring's mutex guards every field, but not the contents of
/// `memory`: they belong to the thread whose turn `state` names.
struct Slot {
  SlotState state = SlotState::kFree;
  EntryKind kind = EntryKind::kBatch;
  std::shared_ptr<const BatchLayout> layout;
  std::unique_ptr<HostBlock> memory;
  HeldLeaves held;  // until the device has read them
};

}  // namespace fastloader
