#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actor.h"
#include "base/error.h"
#include "check.h"
#include "pipeline/ring.h"

namespace fastloader::testing {

using WaitStatus = Ring::WaitStatus;
using Arrival = Ring::Arrival;
using SharedLayout = std::shared_ptr<const BatchLayout>;

constexpr auto kForever = Ring::Clock::time_point::max();
constexpr auto kNow = Ring::Clock::time_point::min();

inline std::ostream& operator<<(std::ostream& out, WaitStatus wait) {
  return out << "WaitStatus " << static_cast<int>(wait);
}
inline std::ostream& operator<<(std::ostream& out, Arrival arrival) {
  return out << "Arrival " << static_cast<int>(arrival);
}

class FakeBlock final : public HostBlock {
 public:
  FakeBlock(size_t bytes, std::string why_not_pinned)
      : memory_(bytes + 1), why_not_pinned_(std::move(why_not_pinned)) {}
  void* data() const override { return const_cast<std::byte*>(memory_.data()); }
  size_t bytes() const override { return memory_.size() - 1; }
  bool pinned() const override { return why_not_pinned_.empty(); }
  const std::string& why_not_pinned() const override { return why_not_pinned_; }

 private:
  std::vector<std::byte> memory_;  // one more, so that there is an address even for none
  std::string why_not_pinned_;
};

/// An event whose generations are done when the test says so.
class FakeEvent final : public Event {
 public:
  bool done(uint64_t generation) const override { return finished >= generation; }
  void wait_host(uint64_t) override {}
  std::atomic<uint64_t> finished{0};
};

inline SharedLayout layout_of(size_t bytes) {
  return std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{BatchLayout::Leaf{bytes, {}, 0}});
}

/// A ring on fake memory, with all four roles in the hands of the test.
struct RingBench {
  explicit RingBench(size_t depth, size_t limit = 1 << 20, size_t max_depth = 0)
      : ring(
            depth, limit,
            [this](size_t bytes) {
              if (before_allocation) before_allocation(bytes);
              return std::make_unique<FakeBlock>(bytes, why_not_pinned);
            },
            max_depth) {}

  /// Fills the next slot with `value`; the answer of whichever call ended it.
  WaitStatus fill(uint64_t epoch, const SharedLayout& layout, int value,
                  Ring::Clock::time_point deadline = kNow) {
    Ring::Filling filling;
    const WaitStatus waited = ring.begin_fill(epoch, layout->packed_bytes(), deadline, &filling);
    if (waited != WaitStatus::kOk) return waited;
    std::memset(filling.data, value, layout->packed_bytes());
    return ring.commit(filling, layout) ? WaitStatus::kOk : WaitStatus::kOver;
  }

  void credit(uint64_t seq, const SharedLayout& layout) {
    Credit credit;
    credit.layout = layout;
    credit.outputs.assign(layout->leaves().size(), nullptr);
    credit.staging = this;
    ring.give_credit(seq, credit);
  }

  /// Plays the prefetch thread for one batch that is ready to be issued; the value it was filled
  /// with. Its ticket is generation seq + 1.
  int issue() {
    Ring::Issue work;
    EXPECT(ring.wait_issue(&work));
    const int value = std::to_integer<int>(*work.data);
    ring.issued(work, Ticket{&event, work.seq + 1});
    return value;
  }

  void reap() {
    Ring::Reap reap;
    EXPECT(ring.wait_reap(&reap));
    ring.reaped(reap);
  }

  Arrival arrival(Ring::Clock::time_point deadline = kNow) {
    return ring.wait_arrival(deadline, &ticket);
  }

  /// Fill, credit, issue, deliver and reap: the whole way of one batch.
  void round(uint64_t epoch, uint64_t seq, const SharedLayout& layout, int value) {
    EXPECT_EQ(fill(epoch, layout, value), WaitStatus::kOk);
    credit(seq, layout);
    EXPECT_EQ(issue(), value);
    EXPECT_EQ(arrival(), Arrival::kBatch);
    EXPECT_EQ(ticket.generation, seq + 1);
    ring.delivered();
    reap();
  }

  std::function<void()> closer() {
    return [this] { ring.close(); };
  }

  std::function<void(size_t)> before_allocation;
  std::string why_not_pinned;
  FakeEvent event;
  Ticket ticket;
  Ring ring;
};

}  // namespace fastloader::testing
