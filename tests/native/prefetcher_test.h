#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actor.h"
#include "augment_reference.h"
#include "backend/host/host_backend.h"
#include "backend/host/host_memory.h"
#include "backend_test.h"
#include "base/error.h"
#include "check.h"
#include "gate.h"
#include "normalize_reference.h"
#include "pipeline/prefetcher.h"

namespace fastloader::testing {

using WaitStatus = Ring::WaitStatus;
using Arrival = Ring::Arrival;
using SharedLayout = std::shared_ptr<const BatchLayout>;

constexpr auto kForever = Ring::Clock::time_point::max();
constexpr auto kNow = Ring::Clock::time_point::min();
constexpr size_t kLimit = size_t{1} << 24;

/// A batch to push and what must come out of it.
struct Batch {
  SharedLayout layout;
  std::vector<Bytes> in;
  std::vector<Bytes> out;

  std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (const Bytes& leaf : in) all.push_back(leaf.data());
    return all;
  }
};

inline Batch plain_batch(const std::vector<size_t>& sizes, unsigned seed) {
  Batch batch;
  std::vector<BatchLayout::Leaf> leaves;
  for (const size_t bytes : sizes) {
    leaves.push_back(BatchLayout::Leaf{bytes, {}, 0});
    batch.in.push_back(pattern(bytes, seed++));
  }
  batch.out = batch.in;
  batch.layout = std::make_shared<const BatchLayout>(std::move(leaves));
  return batch;
}

/// The same structure and layout, other bytes. Only for plain leaves.
inline Batch refilled(const Batch& like, unsigned seed) {
  Batch batch = like;
  for (Bytes& leaf : batch.in) leaf = pattern(leaf.size(), seed++);
  batch.out = batch.in;
  return batch;
}

/// One image that is normalised.
inline Batch normalized_batch(unsigned seed) {
  Batch batch;
  const NormalizeSpec spec =
      make_spec(2, 5 + seed % 3, 7, 3, Layout::kNhwc, Layout::kNchw, kTypes[seed % 3]);
  Expected expected(spec);
  batch.layout = std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{BatchLayout::Leaf{spec.in_bytes(), spec, 0}});
  batch.in.push_back(std::move(expected.in));
  batch.out.push_back(std::move(expected.out));
  return batch;
}

/// 0 to 5 leaves: plain, empty, and images of every dtype and layout; sometimes an augmented image
/// and its records, too.
inline Batch random_batch(std::mt19937& random) {
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  Batch batch;
  std::vector<BatchLayout::Leaf> leaves;
  for (size_t left = below(6); left > 0; --left) {
    const size_t kind = below(8);
    if (kind == 0) {
      leaves.push_back(BatchLayout::Leaf{0, {}, 0});
      batch.in.emplace_back();
      batch.out.emplace_back();
    } else if (kind <= 4) {
      const size_t bytes = 1 + below(kind == 1 ? 5000 : 40);
      leaves.push_back(BatchLayout::Leaf{bytes, {}, 0});
      batch.in.push_back(pattern(bytes, static_cast<unsigned>(random())));
      batch.out.push_back(batch.in.back());
    } else {
      const NormalizeSpec spec =
          make_spec(below(3), 1 + below(9), 1 + below(9), static_cast<int>(1 + below(4)),
                    kLayouts[below(2)], kLayouts[below(2)], kTypes[below(3)]);
      Expected expected(spec);
      leaves.push_back(BatchLayout::Leaf{spec.in_bytes(), spec, 0});
      batch.in.push_back(std::move(expected.in));
      batch.out.push_back(std::move(expected.out));
    }
  }
  if (below(3) == 0) {
    const AugmentCase made = make_augment_case(
        make_spec(below(3), 1 + below(9), 1 + below(9), static_cast<int>(1 + below(4)),
                  kLayouts[below(2)], kLayouts[below(2)], kTypes[below(3)]),
        kFills[below(std::size(kFills))], kBlends[below(2)], below(3), random);
    BatchLayout::Leaf leaf;
    leaf.bytes = made.in.size();
    leaf.augment = made.spec;
    leaves.push_back(leaf);
    batch.in.push_back(made.in);
    batch.out.push_back(made.out);
    batch.in.push_back(made.records());
    batch.out.emplace_back();
    leaves.push_back(BatchLayout::Leaf{batch.in.back().size(), {}, 0});
  }
  batch.layout = std::make_shared<const BatchLayout>(std::move(leaves));
  return batch;
}

/// A random batch of that many leaves at least, with an image that is normalised and one that is
/// augmented among them.
inline Batch image_batch(unsigned seed, size_t leaves = 0) {
  std::mt19937 random(seed);
  for (;;) {
    Batch batch = random_batch(random);
    bool augmented = false;
    bool normalized = false;
    for (const BatchLayout::Leaf& leaf : batch.layout->leaves()) {
      augmented = augmented || (leaf.augment && leaf.out_bytes() > 0);
      normalized = normalized || (leaf.normalize && leaf.out_bytes() > 0);
    }
    if (augmented && normalized && batch.layout->leaves().size() >= leaves) return batch;
  }
}

/// Device memory for one batch, poisoned, and the means to look at it when its stream has come by.
class Memory {
 public:
  static constexpr uint8_t kPoison = 0xA5;

  Memory(Backend& backend, const BatchLayout& layout) {
    for (const BatchLayout::Leaf& leaf : layout.leaves()) add(backend, leaf.out_bytes());
    add(backend, layout.staging_bytes());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    // A test that fails unwinds before its prefetcher is drained. Late copies must not crash it, or
    // its message would be lost.
    if (std::uncaught_exceptions() == 0) return;
    for (auto& block : blocks_) (void)block.release();
  }

  std::vector<void*> outputs() const {
    std::vector<void*> all;
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) all.push_back(blocks_[i]->data());
    return all;
  }
  void* staging() const { return blocks_.back()->data(); }

  /// The first leaf that is not as expected, or -1. The caller has waited for the work.
  int wrong(const Batch& batch) const {
    for (size_t i = 0; i < batch.out.size(); ++i) {
      if (!std::equal(batch.out[i].begin(), batch.out[i].end(), real(i)))
        return static_cast<int>(i);
      if (real(i)[batch.out[i].size()] != kPoison) return static_cast<int>(i);  // one beyond
    }
    return -1;
  }

  bool staging_begins_with(const Bytes& bytes) const {
    return std::equal(bytes.begin(), bytes.end(), real(blocks_.size() - 1));
  }

  bool untouched() const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const uint8_t* byte = real(i);
      if (std::any_of(byte, byte + sizes_[i], [](uint8_t b) { return b != kPoison; })) return false;
    }
    return true;
  }

  /// All bytes as they are now, to see later that none has changed.
  Bytes snapshot() const {
    Bytes all;
    for (size_t i = 0; i < blocks_.size(); ++i) all.insert(all.end(), real(i), real(i) + sizes_[i]);
    return all;
  }

  void poison() {
    for (size_t i = 0; i < blocks_.size(); ++i) std::memset(real(i), kPoison, sizes_[i]);
  }

 private:
  void add(Backend& backend, size_t bytes) {
    sizes_.push_back(bytes + 1);
    blocks_.push_back(backend.allocate_device(0, bytes + 1));
    std::memset(real(blocks_.size() - 1), kPoison, bytes + 1);
  }
  uint8_t* real(size_t i) const { return static_cast<uint8_t*>(real_address(blocks_[i]->data())); }

  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<DeviceBlock>> blocks_;  // one per leaf, then the staging buffer
};

/// A consumer as Python's: makes memory for what is uncredited, looks at what has arrived.
/// `batches` are those pushed, by sequence number; a test that pushes on another thread fills it
/// before.
class Consumer {
 public:
  Consumer(Backend& backend, Prefetcher& prefetcher, uint64_t first_seq)
      : backend_(backend), prefetcher_(prefetcher), next_(first_seq) {}

  /// Offers memory for what is filled, and, where `last` is given, for what will come after it.
  void top_up(const std::map<uint64_t, Batch>& batches, uintptr_t stream, SharedLayout ahead = {}) {
    for (const Ring::Uncredited& missing : prefetcher_.ring().uncredited(ahead != nullptr)) {
      const SharedLayout layout = missing.filled ? batches.at(missing.seq).layout : ahead;
      auto memory = std::make_unique<Memory>(backend_, *layout);
      prefetcher_.give_credit(missing.seq, layout, memory->outputs(), memory->staging(), stream);
      memory_[missing.seq] = std::move(memory);
    }
  }

  /// Waits for the next arrival, giving credits on the way. A batch is delivered to `stream`; its
  /// memory is returned by `take`.
  Arrival next(const std::map<uint64_t, Batch>& batches, uintptr_t stream) {
    for (;;) {
      Ticket ticket;
      const Arrival arrival = prefetcher_.ring().wait_arrival(kForever, &ticket);
      if (arrival == Arrival::kNeedsCredit) {
        top_up(batches, stream);
        continue;
      }
      if (arrival == Arrival::kBatch) {
        prefetcher_.deliver(ticket, stream);
      } else {
        prefetcher_.ring().delivered();
      }
      ++next_;
      return arrival;
    }
  }

  /// Of the batch delivered last.
  std::unique_ptr<Memory> take() {
    std::unique_ptr<Memory> memory = std::move(memory_.at(next_ - 1));
    memory_.erase(next_ - 1);
    return memory;
  }

  uint64_t next_seq() const { return next_; }
  std::map<uint64_t, std::unique_ptr<Memory>>& memory() { return memory_; }

 private:
  Backend& backend_;
  Prefetcher& prefetcher_;
  uint64_t next_;
  std::map<uint64_t, std::unique_ptr<Memory>> memory_;  // credits not delivered
};

}  // namespace fastloader::testing
