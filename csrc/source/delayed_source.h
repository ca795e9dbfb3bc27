#pragma once

#include <time.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "source/source.h"

namespace fastloader {

/// Another source on a slow disk: every read takes that much longer. For tests: Python has it where
/// FASTLOADER_TEST_HOOKS are compiled in.
class DelayedSource final : public Source {
 public:
  DelayedSource(std::shared_ptr<const Source> source, std::chrono::microseconds delay)
      : source_(std::move(source)), delay_(delay) {}

  uint64_t size() const override { return source_->size(); }
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    wait();
    source_->read(index, bytes);
  }
  bool read_if(uint64_t index, std::vector<uint8_t>& bytes, Look look, size_t most) const override {
    wait();
    return source_->read_if(index, bytes, look, most);
  }
  void read_seek_index(uint64_t index, std::vector<uint8_t>& bytes) const override {
    source_->read_seek_index(index, bytes);
  }
  bool may_wait() const override { return source_->may_wait(); }
  std::optional<PixelSize> pixels(uint64_t index) const override { return source_->pixels(index); }
  std::string name(uint64_t index) const override { return source_->name(index); }

 private:
  /// The system counts a sleep as a wait, as it does a disk's, but not if another thread took the
  /// processor until the time was over: then this sleeps once more. A thread that has not waited
  /// once is on a system that does not count.
  void wait() const {
    const uint64_t before = own_waits();
    sleep();
    while (before != 0 && own_waits() == before) sleep();
  }

  void sleep() const {
    timespec left{};
    left.tv_sec = static_cast<time_t>(delay_.count() / 1'000'000);
    left.tv_nsec = static_cast<long>(delay_.count() % 1'000'000 * 1000);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }

  const std::shared_ptr<const Source> source_;
  const std::chrono::microseconds delay_;
};

}  // namespace fastloader
