#pragma once

#include <cstdint>
#include <memory>

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

/// Host memory for one batch. The ring's mutex guards every field, but not the contents of
/// `memory`: they belong to the thread whose turn `state` names.
struct Slot {
  SlotState state = SlotState::kFree;
  EntryKind kind = EntryKind::kBatch;
  std::shared_ptr<const BatchLayout> layout;
  std::unique_ptr<HostBlock> memory;
};

}  // namespace fastloader
