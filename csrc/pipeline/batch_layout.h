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
    /// Whether the leaf is copied from the slot straight into its output; filled in by BatchLayout.
    bool direct = false;
    size_t staged = 0;  ///< offset in the staging buffer unless direct; filled in by BatchLayout
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

  /// A plain leaf of that size is direct: its second copy, from staging into the output, would cost
  /// the device more than one more call costs the prefetch thread.
  static constexpr size_t kDirectBytes = size_t{1} << 20;

  /// What a leaf takes in a slot.
  static size_t room_of(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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
    }
    for (Leaf& leaf : leaves_) {
      const size_t room = room_of(leaf.bytes);
      const bool plain = !leaf.normalize && !leaf.augment && !leaf.records;
      leaf.direct = plain && (leaves_.size() == 1 || leaf.bytes >= kDirectBytes);
      leaf.offset = packed_bytes_;
      packed_bytes_ += room;
      if (leaf.direct) continue;
      leaf.staged = staging_bytes_;
      staging_bytes_ += room;
    }
  }

  const std::vector<Leaf>& leaves() const { return leaves_; }

  /// Bytes the batch takes in a slot.
  size_t packed_bytes() const { return packed_bytes_; }

  /// Bytes of the staging buffer on the device. What is not direct crosses the bus packed into it
  /// and is taken apart on the device. In the slot and in staging, leaves that follow one another
  /// lie in the same distances.
  size_t staging_bytes() const { return staging_bytes_; }

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
  size_t staging_bytes_ = 0;
};

}  // namespace fastloader
