#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "jpeg_samples.h"
#include "source/source.h"

namespace fastloader::testing {

/// Pictures in memory.
class MemorySource : public Source {
 public:
  explicit MemorySource(std::vector<std::vector<uint8_t>> files) : files_(std::move(files)) {}

  uint64_t size() const override { return files_.size(); }
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    const std::vector<uint8_t>& file = files_.at(index);
    bytes.assign(file.begin(), file.end());
  }
  std::string name(uint64_t index) const override { return "sample " + std::to_string(index); }

 private:
  const std::vector<std::vector<uint8_t>> files_;
};

inline std::vector<std::vector<uint8_t>> small_pictures(uint64_t count, uint32_t largest = 24) {
  std::vector<std::vector<uint8_t>> files;
  for (uint64_t i = 0; i < count; ++i) {
    JpegSpec spec;
    spec.width = 1 + static_cast<uint32_t>(i * 7) % largest;
    spec.height = 1 + static_cast<uint32_t>(i * 5) % largest;
    spec.seed = i + 1;
    for (JpegSampling& sampling : spec.sampling) sampling = {1, 1};
    files.push_back(make_jpeg(spec));
  }
  return files;
}

/// Holds threads at chosen samples until the test lets them go, and remembers which samples were
/// begun. open_all() opens what is still closed when a test fails; call it before the pool is
/// destroyed.
class GatedSource : public Source {
 public:
  explicit GatedSource(uint64_t count, bool may_wait = false)
      : pictures_(small_pictures(count)), may_wait_(may_wait) {}

  uint64_t size() const override { return pictures_.size(); }
  bool may_wait() const override { return may_wait_; }
  std::string name(uint64_t index) const override { return pictures_.name(index); }

  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    std::function<void()> then;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      begun_.push_back(index);
      ++inside_;
      most_inside_ = std::max(most_inside_, inside_);
      changed_.notify_all();
      changed_.wait(lock, [&] { return held_.count(index) == 0; });
      --inside_;
      const auto found = instead_.find(index);
      if (found != instead_.end()) then = found->second;
    }
    if (then) then();
    pictures_.read(index, bytes);
  }

  void hold(const std::set<uint64_t>& indices) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.insert(indices.begin(), indices.end());
  }
  void hold_all() {
    for (uint64_t i = 0; i < size(); ++i) hold({i});
  }
  void open(uint64_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.erase(index);
    changed_.notify_all();
  }
  void open_all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }
  /// Reading that sample calls `body` once it has passed the gate.
  void instead(uint64_t index, std::function<void()> body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    instead_[index] = std::move(body);
  }

  /// Returns once so many reads have begun.
  void wait_begun(size_t count) const {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return begun_.size() >= count; });
    if (!came) {
      throw Failure{"only " + std::to_string(begun_.size()) + " reads of " + std::to_string(count) +
                    " have begun"};
    }
  }
  /// The samples whose reading has begun, in that order.
  std::vector<uint64_t> begun() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_;
  }
  std::set<uint64_t> begun_set() const {
    const std::vector<uint64_t> all = begun();
    return {all.begin(), all.end()};
  }
  size_t most_inside() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return most_inside_;
  }

 private:
  const MemorySource pictures_;
  const bool may_wait_;
  mutable std::mutex mutex_;  // guards everything below
  mutable std::condition_variable changed_;
  mutable std::vector<uint64_t> begun_;
  mutable size_t inside_ = 0;
  mutable size_t most_inside_ = 0;
  std::set<uint64_t> held_;
  std::map<uint64_t, std::function<void()>> instead_;
};

}  // namespace fastloader::testing
