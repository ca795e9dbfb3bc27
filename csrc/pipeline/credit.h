#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "pipeline/batch_layout.h"

namespace fastloader {

/// Device memory that the consumer made for one batch to come, and since when it may be written.
struct Credit {
  std::shared_ptr<const BatchLayout> layout;  ///< null: no credit yet
  std::vector<void*> outputs;                 ///< one per leaf of the layout
  void* staging = nullptr;  ///< staging_bytes() of device memory, null if none are needed
  Ticket writable;          ///< recorded on the consumer's stream
};

}  // namespace fastloader
