#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "image/jpeg/file.h"

namespace fastloader {

/// Which bits of which coefficients the scans of a progressive file have brought. Takes only the
/// order that encoders write: the first coefficients before the others, and each bit behind the one
/// above it. libjpeg-turbo decodes others too, in ways of its own, and smooths what is missing.
class ScanScript {
 public:
  ScanScript();

  /// Returns false if the scan's bits are not the next ones of all its coefficients.
  bool add(const ProgressiveScan& scan);

  /// Whether so many components have all their bits.
  bool complete(size_t components) const;

 private:
  /// That has come, of each coefficient.
  std::array<std::array<uint8_t, kJpegBlock>, kMaxOwnComponents> lowest_bit_;
};

}  // namespace fastloader
