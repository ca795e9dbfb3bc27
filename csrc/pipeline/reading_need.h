#pragma once

#include <cstdint>

namespace fastloader {

/// Tells whether a loader's files are to be read ahead: while reading them has to wait. Where the
/// page cache has them, a thread that hands files over takes more time than it saves.
class ReadingNeed {
 public:
  enum class Mode : uint8_t {
    kAsNeeded,
    kNever,
    kAlways,
  };

  explicit ReadingNeed(Mode mode) : mode_(mode), ahead_(mode == Mode::kAlways) {}

  /// Counts files that were read, and those of them whose reading had to wait.
  void add(uint64_t files, uint64_t waited) {
    if (mode_ != Mode::kAsNeeded) return;
    files_ += files;
    waited_ += waited;
    if (files_ < kWindow) return;
    // In between it stays as it is, so that it does not change with every window.
    if (waited_ * 4 >= files_) ahead_ = true;
    if (waited_ * 16 <= files_) ahead_ = false;
    files_ = 0;
    waited_ = 0;
  }

  bool ahead() const { return ahead_; }

 private:
  /// Files from which a change is concluded: few enough for the first batch of a cold start.
  static constexpr uint64_t kWindow = 16;

  Mode mode_;
  bool ahead_;
  uint64_t files_ = 0;
  uint64_t waited_ = 0;
};

}  // namespace fastloader
