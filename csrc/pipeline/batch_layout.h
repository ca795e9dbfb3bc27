#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"

namespace fastloader {

/// How the tensors of one batch lie in a ring slot and what becomes of them on the device.
/// Immutable; batches of the same structure share one layout, and layouts are compared by address.
class BatchLayout {
 public:
  struct Leaf {
    size_t bytes = 0;
    /// Set: the leaf is uint8 pixels and the output is normalised floats. Unset: a plain copy.
    std::optional<NormalizeSpec> normalize;
    size_t offset = 0;  ///< in the slot; filled in by BatchLayout
    /// Set: the leaf is uint8 pixels and the output what augment() makes of them, by the records
    /// in the layout's last leaf, which has no output.
    std::optional<AugmentSpec> augment = {};
    bool records = false;  ///< whether this is that last leaf; filled in by BatchLayout

    size_t out_bytes() const {
      if (records) return 0;
      if (augment) return augment->out_bytes();
      return normalize ? normalize->out_bytes() : bytes;
    }
  };

  /// Leaves start on this boundary, so that every device access may be 16 bytes wide and no two
  /// leaves share a cache line.
  static constexpr size_t kAlignment = 256;

  explicit BatchLayout(std::vector<Leaf> leaves) : leaves_(std::move(leaves)) {
    for (Leaf& leaf : leaves_) {
      if (leaf.augment) check_augmented(leaf);
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
  void check_augmented(const Leaf& leaf) {
    validate(*leaf.augment);
    if (leaf.normalize || leaf.bytes != leaf.augment->in_bytes()) {
      throw InvalidArgument("a leaf of " + std::to_string(leaf.bytes) +
                            " bytes cannot be augmented as " +
                            std::to_string(leaf.augment->in_bytes()) + " pixels");
    }
    Leaf& last = leaves_.back();
    if (&last == &leaf || last.normalize || last.records ||
        last.bytes != leaf.augment->record_bytes()) {
      throw InvalidArgument("augmenting one leaf needs " +
                            std::to_string(leaf.augment->record_bytes()) +
                            " bytes of records of its own in the layout's last leaf");
    }
    last.records = true;
  }

  std::vector<Leaf> leaves_;
  size_t packed_bytes_ = 0;
};

}  // namespace fastloader
