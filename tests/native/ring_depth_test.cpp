// A ring whose depth grows while it runs: slots, credits and the memory they share.

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "ring_test.h"

namespace fastloader::testing {
namespace {

TEST(slots_beyond_the_depth_are_not_used_until_it_grows) {
  RingBench bench(2, 1 << 20, 5);
  const SharedLayout layout = layout_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.ring.max_depth(), 5u);
  for (int value : {1, 2}) EXPECT_EQ(bench.fill(1, layout, value), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 3), WaitStatus::kTimeout);
  bench.ring.deepen(4);
  EXPECT_EQ(bench.ring.depth(), 4u);
  for (int value : {3, 4}) EXPECT_EQ(bench.fill(1, layout, value), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 5), WaitStatus::kTimeout);
  for (uint64_t seq = 0; seq < 4; ++seq) {
    bench.credit(seq, layout);
    EXPECT_EQ(bench.issue(), static_cast<int>(seq) + 1);
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);
    bench.ring.delivered();
    bench.reap();
  }
}

TEST(deepening_wakes_a_producer_that_waits) {
  RingBench bench(1, 1 << 20, 3);
  const SharedLayout layout = layout_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  Actor producer([&] { EXPECT_EQ(bench.fill(1, layout, 2, kForever), WaitStatus::kOk); },
                 bench.closer());
  producer.wait_until_asleep();
  bench.ring.deepen(2);
  producer.join();
}

TEST(deepening_widens_the_window_of_credits) {
  RingBench bench(2, 1 << 20, 4);
  const SharedLayout layout = layout_of(16);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.ring.uncredited(true).size(), 2u);
  EXPECT_THROW(bench.credit(2, layout), InvalidArgument, "batch 2");
  bench.ring.deepen(3);
  EXPECT_EQ(bench.ring.uncredited(true).size(), 3u);
  bench.credit(2, layout);
}

TEST(depth_never_shrinks_and_stays_within_what_the_ring_was_made_for) {
  RingBench bench(2, 1 << 20, 4);
  bench.ring.deepen(1);
  EXPECT_EQ(bench.ring.depth(), 2u);
  EXPECT_THROW(bench.ring.deepen(5), InvalidArgument, "up to 4, not 5");
  EXPECT_THROW(RingBench(3, 1 << 20, 2), InvalidArgument, "depth 3");
  EXPECT_EQ(RingBench(3).ring.max_depth(), 3u);
}

TEST(no_more_slots_hold_memory_than_the_ring_is_deep) {
  RingBench bench(2, 1 << 20, 7);
  const SharedLayout layout = layout_of(256);
  bench.ring.open_epoch();
  uint64_t seq = 0;
  for (int round = 0; round < 20; ++round) bench.round(1, seq++, layout, round);
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{2 * 256});
  EXPECT_EQ(bench.ring.stats().slot_growths, uint64_t{0});
  bench.ring.deepen(5);
  for (int round = 0; round < 20; ++round) bench.round(1, seq++, layout, round);
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{5 * 256});
}

TEST(memory_that_fits_is_taken_over_first) {
  RingBench bench(2, 1 << 20, 3);
  bench.ring.open_epoch();
  bench.round(1, 0, layout_of(256), 1);
  bench.round(1, 1, layout_of(1024), 1);
  bench.round(1, 2, layout_of(512), 1);  // the third slot has none of its own
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{256 + 1024});
  EXPECT_EQ(bench.ring.stats().slot_growths, uint64_t{0});
}

TEST(slots_in_the_making_keep_their_memory_to_themselves) {
  RingBench bench(3, 1 << 20, 6);
  bench.ring.open_epoch();
  std::set<std::byte*> seen;
  std::vector<Ring::Filling> all(3);
  for (Ring::Filling& each : all) {
    EXPECT_EQ(bench.ring.begin_fill(1, 64, kNow, &each), WaitStatus::kOk);
    seen.insert(each.data);
  }
  EXPECT_EQ(seen.size(), 3u);
  // Their epoch ends; what is still in the making counts, and the next epoch waits for it.
  const uint64_t epoch = bench.ring.open_epoch().number;
  Ring::Filling late;
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &late), WaitStatus::kTimeout);
  bench.ring.abandon(all[0]);
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &late), WaitStatus::kOk);
  EXPECT(late.data == all[0].data);
  bench.ring.abandon(all[1]);
  bench.ring.abandon(all[2]);
  bench.ring.abandon(late);
}

TEST(a_late_producer_keeps_its_memory_while_others_are_handed_over) {
  RingBench bench(2, 1 << 20, 5);
  const SharedLayout layout = layout_of(64);
  bench.ring.open_epoch();
  for (uint64_t seq = 0; seq < 2; ++seq) bench.round(1, seq, layout, 1);
  std::vector<Ring::Filling> late(2);
  for (Ring::Filling& each : late) {
    EXPECT_EQ(bench.ring.begin_fill(1, 64, kNow, &each), WaitStatus::kOk);
  }
  std::memset(late[1].data, 42, 64);
  const uint64_t epoch = bench.ring.open_epoch().number;
  bench.ring.deepen(3);
  bench.ring.abandon(late[0]);
  // The slot of the first is free; the second is still being written.
  Ring::Filling next;
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &next), WaitStatus::kOk);
  EXPECT(next.data != late[1].data);
  std::memset(next.data, 7, 64);
  EXPECT_EQ(std::to_integer<int>(late[1].data[63]), 42);
  Ring::Filling behind;
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &behind), WaitStatus::kTimeout);  // its turn
  bench.ring.abandon(late[1]);
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &behind), WaitStatus::kOk);
  bench.ring.abandon(next);
  bench.ring.abandon(behind);
}

TEST(a_slot_whose_memory_is_being_made_counts_as_holding_some) {
  // The late producer's slot has no memory at the moment that the new epoch looks, and will.
  RingBench bench(3, 1 << 20, 4);
  bench.ring.open_epoch();
  std::vector<Ring::Filling> first(2);
  for (Ring::Filling& each : first) {
    EXPECT_EQ(bench.ring.begin_fill(1, 64, kNow, &each), WaitStatus::kOk);
  }
  Door reached, go;
  bench.before_allocation = [&](size_t bytes) {
    if (bytes > 100) throw std::bad_alloc();
    if (bytes < 100) return;
    reached.open();
    go.pass();
  };
  Actor late(
      [&] {
        Ring::Filling mine;
        EXPECT_EQ(bench.ring.begin_fill(1, 100, kForever, &mine), WaitStatus::kOver);
      },
      [&] { go.open(); });
  reached.pass();
  for (const Ring::Filling& each : first) bench.ring.abandon(each);
  const uint64_t epoch = bench.ring.open_epoch().number;
  bench.ring.lower(2);
  // The first slot loses its memory. The second one's, and what is being made, are the two there
  // may be: so it is handed over.
  Ring::Filling next;
  EXPECT_THROW(bench.ring.begin_fill(epoch, 160, kNow, &next), std::bad_alloc, "alloc");
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{64});
  EXPECT_EQ(bench.ring.begin_fill(epoch, 64, kNow, &next), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{64});
  EXPECT(next.data == first[1].data);
  go.open();
  late.join();
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{64 + 100});
  bench.ring.abandon(next);
}

TEST(slots_of_cancelled_epochs_are_counted_once) {
  RingBench bench(2, 1 << 20, 6);
  const SharedLayout layout = layout_of(64);
  for (size_t depth = 2; depth <= 6; ++depth) {
    bench.ring.deepen(depth);
    // In the making, filled, an error, issued and not delivered: every way to be in use at the end.
    const Ring::Epoch begun = bench.ring.open_epoch();
    EXPECT_EQ(bench.fill(begun.number, layout, 1), WaitStatus::kOk);
    bench.credit(begun.first_seq, layout);
    EXPECT_EQ(bench.issue(), 1);
    Ring::Filling late;
    if (depth == 2) {
      EXPECT_EQ(bench.ring.begin_fill(begun.number, 64, kNow, &late), WaitStatus::kOk);
    } else {
      EXPECT_EQ(bench.ring.put(begun.number, EntryKind::kError, kNow), WaitStatus::kOk);
      EXPECT_EQ(bench.ring.begin_fill(begun.number, 64, kNow, &late), WaitStatus::kOk);
    }
    bench.ring.cancel();
    bench.reap();
    bench.ring.abandon(late);
    // All are free again, and no more than there are.
    const uint64_t epoch = bench.ring.open_epoch().number;
    for (size_t i = 0; i < depth; ++i) EXPECT_EQ(bench.fill(epoch, layout, 2), WaitStatus::kOk);
    EXPECT_EQ(bench.fill(epoch, layout, 2), WaitStatus::kTimeout);
  }
}

TEST(lowering_leaves_what_is_there_and_takes_less_from_then_on) {
  RingBench bench(4);
  const SharedLayout layout = layout_of(16);
  bench.ring.open_epoch();
  for (int value : {0, 1, 2, 3}) EXPECT_EQ(bench.fill(1, layout, value), WaitStatus::kOk);
  for (uint64_t seq = 0; seq < 4; ++seq) bench.credit(seq, layout);
  bench.ring.lower(2);
  bench.ring.lower(3);
  EXPECT_EQ(bench.ring.depth(), 2u);
  EXPECT_THROW(bench.ring.lower(0), InvalidArgument, "at least 1");
  EXPECT(bench.ring.uncredited(true).empty());
  for (int value : {0, 1}) EXPECT_EQ(bench.issue(), value);
  // The credits for the other two are kept; their turn comes with the window.
  for (int value : {2, 3}) {
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);
    bench.ring.delivered();
    EXPECT_EQ(bench.issue(), value);
    bench.reap();
    EXPECT_EQ(bench.fill(1, layout, 9),
              WaitStatus::kTimeout);  // still two of the four, and more are not taken
  }
  bench.reap();
  EXPECT_EQ(bench.fill(1, layout, 4), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 5), WaitStatus::kTimeout);
  bench.ring.deepen(3);
  EXPECT_EQ(bench.fill(1, layout, 5), WaitStatus::kOk);
}

TEST(epochs_that_end_early_while_it_grows) {
  RingBench bench(1, 1 << 20, 8);
  const SharedLayout layout = layout_of(256);
  Actor prefetch(
      [&] {
        Ring::Issue work;
        while (bench.ring.wait_issue(&work)) {
          EXPECT(work.data[0] == work.data[255]);  // no thread writes into what is on its way
          bench.ring.issued(work, Ticket{&bench.event, work.seq + 1});
        }
      },
      bench.closer());
  Actor reaper(
      [&] {
        Ring::Reap reap;
        while (bench.ring.wait_reap(&reap)) bench.ring.reaped(reap);
      },
      bench.closer());
  std::vector<std::unique_ptr<Actor>> producers;
  for (int round = 0; round < 60; ++round) {
    const Ring::Epoch epoch = bench.ring.open_epoch();
    producers.push_back(std::make_unique<Actor>(
        [&bench, layout, number = epoch.number, round] {
          while (bench.fill(number, layout, round, kForever) == WaitStatus::kOk) {
          }
        },
        bench.closer()));
    Ticket ticket;
    for (uint64_t seq = epoch.first_seq; seq < epoch.first_seq + round % 7; ++seq) {
      for (const Ring::Uncredited& missing : bench.ring.uncredited(true)) {
        bench.credit(missing.seq, layout);
      }
      EXPECT_EQ(bench.ring.wait_arrival(kForever, &ticket), Arrival::kBatch);
      bench.ring.delivered();
      if (round % 8 == 7) bench.ring.deepen(std::min<size_t>(8, bench.ring.depth() + 1));
    }
    if (round % 2 == 0) bench.ring.cancel();  // else the next one does
  }
  bench.ring.cancel();
  for (auto& producer : producers) producer->join();
  bench.ring.close();
  prefetch.join();
  reaper.join();
  EXPECT_EQ(bench.ring.depth(), 8u);
  EXPECT(bench.ring.stats().slot_bytes <= 8 * 256);
}

TEST(everything_at_once_while_it_grows) {
  RingBench bench(1, 1 << 20, 8);
  const SharedLayout layout = layout_of(256);
  const uint64_t epoch = bench.ring.open_epoch().number;
  constexpr int kBatches = 300;
  Actor producer(
      [&] {
        for (int i = 0; i < kBatches; ++i) {
          EXPECT_EQ(bench.fill(epoch, layout, i % 100, kForever), WaitStatus::kOk);
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
      bench.credit(missing.seq, layout);
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
