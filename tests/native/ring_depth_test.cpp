// A ring whose depth grows while it runs: slots, credits and the memory they share.

#include <algorithm>
#include <set>
#include <vector>

#include "ring_test.h"

namespace fastloader::testing {
namespace {

TEST(slots_beyond_the_depth_are_not_used_until_it_grows) {
  RingBench bench(2, 1 << 20, 5);
  const SharedPlan plan = plan_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.ring.most(), 5u);
  for (int value : {1, 2}) EXPECT_EQ(bench.fill(1, plan, value), Wait::kOk);
  EXPECT_EQ(bench.fill(1, plan, 3), Wait::kTimeout);
  bench.ring.deepen(4);
  EXPECT_EQ(bench.ring.depth(), 4u);
  for (int value : {3, 4}) EXPECT_EQ(bench.fill(1, plan, value), Wait::kOk);
  EXPECT_EQ(bench.fill(1, plan, 5), Wait::kTimeout);
  for (uint64_t seq = 0; seq < 4; ++seq) {
    bench.credit(seq, plan);
    EXPECT_EQ(bench.issue(), static_cast<int>(seq) + 1);
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);
    bench.ring.delivered();
    bench.reap();
  }
}

TEST(deepening_wakes_a_producer_that_waits) {
  RingBench bench(1, 1 << 20, 3);
  const SharedPlan plan = plan_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, plan, 1), Wait::kOk);
  Actor producer([&] { EXPECT_EQ(bench.fill(1, plan, 2, kForever), Wait::kOk); }, bench.closer());
  producer.wait_until_asleep();
  bench.ring.deepen(2);
  producer.join();
}

TEST(deepening_widens_the_window_of_credits) {
  RingBench bench(2, 1 << 20, 4);
  const SharedPlan plan = plan_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.ring.uncredited(true).size(), 2u);
  EXPECT_THROW(bench.credit(2, plan), InvalidArgument, "batch 2");
  bench.ring.deepen(3);
  EXPECT_EQ(bench.ring.uncredited(true).size(), 3u);
  bench.credit(2, plan);
}

TEST(depth_never_shrinks_and_stays_within_what_the_ring_was_made_for) {
  RingBench bench(2, 1 << 20, 4);
  bench.ring.deepen(1);
  EXPECT_EQ(bench.ring.depth(), 2u);
  EXPECT_THROW(bench.ring.deepen(5), InvalidArgument, "up to 4, not 5");
  EXPECT_THROW(RingBench(3, 1 << 20, 2), InvalidArgument, "depth 3");
  EXPECT_EQ(RingBench(3).ring.most(), 3u);
}

TEST(no_more_slots_hold_memory_than_the_ring_is_deep) {
  RingBench bench(2, 1 << 20, 7);
  const SharedPlan plan = plan_of(256);
  bench.ring.open_epoch();
  uint64_t seq = 0;
  for (int round = 0; round < 20; ++round) bench.round(1, seq++, plan, round);
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{2 * 256});
  EXPECT_EQ(bench.ring.stats().slot_growths, uint64_t{0});
  bench.ring.deepen(5);
  for (int round = 0; round < 20; ++round) bench.round(1, seq++, plan, round);
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{5 * 256});
}

TEST(memory_that_fits_is_taken_over_first) {
  RingBench bench(2, 1 << 20, 3);
  bench.ring.open_epoch();
  bench.round(1, 0, plan_of(256), 1);
  bench.round(1, 1, plan_of(1024), 1);
  bench.round(1, 2, plan_of(512), 1);  // the third slot has none of its own
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{256 + 1024});
  EXPECT_EQ(bench.ring.stats().slot_growths, uint64_t{0});
}

TEST(slots_in_the_making_keep_their_memory_to_themselves) {
  RingBench bench(3, 1 << 20, 6);
  bench.ring.open_epoch();
  std::set<std::byte*> seen;
  std::vector<Ring::Filling> all(3);
  for (Ring::Filling& each : all) {
    EXPECT_EQ(bench.ring.begin_fill(1, 64, kNow, &each), Wait::kOk);
    seen.insert(each.data);
  }
  EXPECT_EQ(seen.size(), 3u);
  // Their epoch ends; what is still in the making counts, and the next epoch waits for it.
  const uint64_t epoch = bench.ring.open_epoch().number;
  Ring::Filling late;
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &late), Wait::kTimeout);
  bench.ring.abandon(all[0]);
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &late), Wait::kOk);
  EXPECT(late.data == all[0].data);
  bench.ring.abandon(all[1]);
  bench.ring.abandon(all[2]);
  bench.ring.abandon(late);
}

TEST(everything_at_once_while_it_grows) {
  RingBench bench(1, 1 << 20, 8);
  const SharedPlan plan = plan_of(256);
  const uint64_t epoch = bench.ring.open_epoch().number;
  constexpr int kBatches = 300;
  Actor producer(
      [&] {
        for (int i = 0; i < kBatches; ++i) {
          EXPECT_EQ(bench.fill(epoch, plan, i % 100, kForever), Wait::kOk);
        }
      },
      bench.closer());
  Actor prefetch(
      [&] {
        for (int i = 0; i < kBatches; ++i) EXPECT_EQ(bench.issue(), i % 100);
      },
      bench.closer());
  Actor reaper(
      [&] {
        for (int i = 0; i < kBatches; ++i) bench.reap();
      },
      bench.closer());
  for (uint64_t seq = 0; seq < kBatches; ++seq) {
    for (const Ring::Uncredited& missing : bench.ring.uncredited(true)) {
      bench.credit(missing.seq, plan);
    }
    EXPECT_EQ(bench.arrival(kForever), Arrival::kBatch);
    EXPECT_EQ(bench.ticket.generation, seq + 1);
    bench.ring.delivered();
    if (seq % 40 == 39) bench.ring.deepen(std::min<size_t>(8, bench.ring.depth() + 1));
  }
  producer.join();
  prefetch.join();
  reaper.join();
  EXPECT_EQ(bench.ring.depth(), 8u);
  EXPECT(bench.ring.stats().slot_bytes <= 8 * 256);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
