// Memory of the ring's slots: how much is asked for, and what happens when it cannot be had.

#include "ring_test.h"

namespace fastloader::testing {
namespace {

TEST(slots_are_exact_at_first_and_have_some_air_later) {
  RingBench bench(1, 10000);
  std::vector<size_t> asked;
  bench.before_allocation = [&](size_t bytes) { asked.push_back(bytes); };
  bench.ring.open_epoch();
  uint64_t seq = 0;
  for (const size_t bytes : {1024u, 512u, 1024u, 2048u, 2304u, 8192u, 9216u}) {
    bench.round(1, seq++, layout_of(bytes), 1);
  }
  // 2304 fits into the air of 2048; the last ones stop at the limit.
  EXPECT(asked == (std::vector<size_t>{1024, 2560, 10000}));
  EXPECT_EQ(bench.ring.stats().slot_growths, uint64_t{2});
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{10000});
}

TEST(a_batch_without_bytes_has_a_slot_too) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(0);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 0), WaitStatus::kOk);
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
}

TEST(too_large_a_batch_is_refused_and_the_ring_goes_on) {
  RingBench bench(2, 1000);
  bench.ring.open_epoch();
  Ring::Filling filling;
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(bench.ring.begin_fill(1, 1001, kNow, &filling), InvalidArgument, "1001 bytes");
    EXPECT_THROW(bench.ring.begin_fill(1, 1001, kNow, &filling), InvalidArgument, "1000 bytes");
    bench.round(1, static_cast<uint64_t>(round), layout_of(700), 3);
  }
  EXPECT_EQ(bench.ring.begin_fill(1, 1000, kNow, &filling), WaitStatus::kOk);
  bench.ring.abandon(filling);
}

TEST(an_allocator_that_throws_leaves_the_slot_free) {
  RingBench bench(1);
  bench.ring.open_epoch();
  bench.round(1, 0, layout_of(100), 1);
  Ring::Filling filling;
  bench.before_allocation = [](size_t) { throw BackendError("no memory left"); };
  EXPECT_THROW(bench.ring.begin_fill(1, 5000, kNow, &filling), BackendError, "no memory left");
  EXPECT_THROW(bench.ring.begin_fill(1, 5000, kNow, &filling), BackendError, "no memory left");
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{0});
  bench.before_allocation = nullptr;
  bench.round(1, 1, layout_of(5000), 1);
}

TEST(an_allocator_that_throws_wakes_the_next_producer) {
  RingBench bench(1);
  bench.ring.open_epoch();
  Door reached, go;
  bench.before_allocation = [&](size_t) {
    reached.open();
    go.pass();
    throw BackendError("no memory left");
  };
  Actor stale(
      [&] {
        Ring::Filling filling;
        EXPECT_THROW(bench.ring.begin_fill(1, 100, kForever, &filling), BackendError, "no memory");
      },
      [&] { go.open(); });
  reached.pass();
  bench.ring.cancel();
  const uint64_t epoch = bench.ring.open_epoch().number;
  Actor producer(
      [&] {
        EXPECT_THROW(bench.fill(epoch, layout_of(8), 1, kForever), BackendError, "no memory");
      },
      [&] { go.open(); });
  producer.wait_until_asleep();
  go.open();
  stale.join();
  producer.join();
}

TEST(unpinned_memory_is_told_once) {
  RingBench bench(2);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout_of(8), 1), WaitStatus::kOk);
  EXPECT(bench.ring.stats().pinned);
  bench.why_not_pinned = "locked memory is limited";
  EXPECT_EQ(bench.fill(1, layout_of(8), 1), WaitStatus::kOk);
  EXPECT(!bench.ring.stats().pinned);
  EXPECT_EQ(bench.ring.stats().why_not_pinned, std::string("locked memory is limited"));
}

TEST(a_slot_that_grows_does_not_hold_the_others_up) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  Door reached, go;
  bench.before_allocation = [&](size_t) {
    reached.open();
    go.pass();
  };
  Actor producer([&] { EXPECT_EQ(bench.fill(1, layout, 2, kForever), WaitStatus::kOk); },
                 [&] { go.open(); });
  reached.pass();
  bench.credit(0, layout);
  EXPECT_EQ(bench.issue(), 1);
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  bench.reap();
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{256});
  go.open();
  producer.join();
  EXPECT_EQ(bench.ring.stats().slot_bytes, uint64_t{512});
}

/// The epoch ends while the old producer's slot grows; `next` plays what follows.
template <typename End>
void while_growing(WaitStatus expected, End end) {
  RingBench bench(1);
  bench.ring.open_epoch();
  Door reached, go;
  bench.before_allocation = [&](size_t) {
    reached.open();
    go.pass();
  };
  Actor stale(
      [&] {
        Ring::Filling filling;
        EXPECT_EQ(bench.ring.begin_fill(1, 100, kForever, &filling), expected);
        EXPECT(filling.data == nullptr);
      },
      [&] { go.open(); });
  reached.pass();
  end(bench);
  go.open();
  stale.join();
}

TEST(a_producer_whose_slot_grows_is_told_of_the_end) {
  while_growing(WaitStatus::kOver, [](RingBench& bench) { bench.ring.cancel(); });
  while_growing(WaitStatus::kOver, [](RingBench& bench) { bench.ring.open_epoch(); });
  while_growing(WaitStatus::kOver, [](RingBench& bench) { bench.ring.close(); });
  while_growing(WaitStatus::kOver, [](RingBench& bench) { bench.ring.fail("broken"); });
}

TEST(a_new_epoch_waits_for_a_slot_that_grows) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Door reached, go;
  bench.before_allocation = [&](size_t) {
    reached.open();
    go.pass();
  };
  Actor stale([&] { EXPECT_EQ(bench.fill(1, layout_of(4096), 9, kForever), WaitStatus::kOver); },
              [&] { go.open(); });
  reached.pass();
  bench.ring.cancel();
  const Ring::Epoch epoch = bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(epoch.number, layout, 5), WaitStatus::kTimeout);
  go.open();
  EXPECT_EQ(bench.fill(epoch.number, layout, 5, kForever), WaitStatus::kOk);
  stale.join();
  bench.credit(epoch.first_seq, layout);
  EXPECT_EQ(bench.issue(), 5);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
