#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/normalize.h"

namespace fastloader {

/// How the tensors of one batch lie in a ring slot and what becomes of them on the device.
/// Immutable; batches of the same structure share one plan, and plans are compared by address.
class BatchPlan {
 public:
  struct Leaf {
    size_t bytes = 0;
    /// Set: the leaf is uint8 pixels and the output is normalised floats. Unset: a plain copy.
    std::optional<NormalizeSpec> normalize;
    size_t offset = 0;  ///< in the slot; filled in by BatchPlan

    size_t out_bytes() const { return normalize ? normalize->out_bytes() : bytes; }
  };

  /// Leaves start on this boundary, so that every device access may be 16 bytes wide and no two
  /// leaves share a cache line.
  static constexpr size_t kAlignment = 256;

  explicit BatchPlan(std::vector<Leaf> leaves) : leaves_(std::move(leaves)) {
    for (Leaf& leaf : leaves_) {
      if (leaf.normalize) {
        validate(*leaf.normalize);
        if (leaf.bytes != leaf.normalize->in_bytes()) {
          throw InvalidArgument("a leaf of " + std::to_string(leaf.bytes) +
                                " bytes cannot be normalised as " +
                                std::to_string(leaf.normalize->in_bytes()) + " pixels");
        }
      }
      leaf.offset = packed_bytes_;
      packed_bytes_ += (leaf.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  const std::vector<Leaf>& leaves() const { return leaves_; }

  /// Bytes the batch takes in a slot, and in the staging buffer on the device.
  size_t packed_bytes() const { return packed_bytes_; }

  /// A single plain leaf is copied straight into its output; everything else crosses the bus once,
  /// packed, and is taken apart on the device.
  bool needs_staging() const {
    return !(leaves_.size() == 1 && !leaves_[0].normalize) && packed_bytes_ > 0;
  }

 private:
  std::vector<Leaf> leaves_;
  size_t packed_bytes_ = 0;
};

}  // namespace fastloader
