// The slot state machine, the order of batches and the credits, with every role played by the test.
// What ends an epoch or a ring is in ring_end_test.cpp, memory in ring_growth_test.cpp, a depth
// that grows in ring_depth_test.cpp.

#include "ring_test.h"

namespace fastloader::testing {
namespace {

TEST(a_batch_goes_all_the_way) {
  for (const size_t depth : {size_t{1}, size_t{2}, size_t{5}}) {
    RingBench bench(depth);
    const SharedLayout layout = layout_of(100);
    const Ring::Epoch epoch = bench.ring.open_epoch();
    EXPECT_EQ(epoch.number, uint64_t{1});
    EXPECT_EQ(epoch.first_seq, uint64_t{0});
    for (uint64_t seq = 0; seq < 4 * depth; ++seq) bench.round(1, seq, layout, int(seq % 200));
  }
}

TEST(depth_zero_is_refused) { EXPECT_THROW(RingBench{0}, InvalidArgument, "depth"); }

TEST(batches_come_in_order) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  for (int value = 0; value < 3; ++value) EXPECT_EQ(bench.fill(1, layout, value), WaitStatus::kOk);
  // Credits in another order than batches.
  for (const uint64_t seq : {2u, 0u, 1u}) bench.credit(seq, layout);
  for (int value = 0; value < 3; ++value) EXPECT_EQ(bench.issue(), value);
  for (uint64_t seq = 0; seq < 3; ++seq) {
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);
    EXPECT_EQ(bench.ticket.generation, seq + 1);
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);  // asking again changes nothing
    EXPECT_EQ(bench.ticket.generation, seq + 1);
    bench.ring.delivered();
  }
  EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
}

TEST(a_full_ring_makes_the_producer_wait) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 2), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 3), WaitStatus::kTimeout);  // both FILLED
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kTimeout);
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  EXPECT_EQ(bench.fill(1, layout, 3), WaitStatus::kTimeout);  // ISSUING
  bench.ring.issued(work, Ticket{});
  EXPECT_EQ(bench.fill(1, layout, 3), WaitStatus::kTimeout);  // ISSUED
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  EXPECT_EQ(bench.fill(1, layout, 3),
            WaitStatus::kTimeout);  // delivered, but the copy may still run
  Actor producer([&] { EXPECT_EQ(bench.fill(1, layout, 3, kForever), WaitStatus::kOk); },
                 bench.closer());
  producer.wait_until_asleep();
  bench.reap();
  producer.join();
  bench.credit(1, layout);
  bench.credit(2, layout);
  EXPECT_EQ(bench.issue(), 2);
  EXPECT_EQ(bench.issue(), 3);
}

TEST(an_abandoned_slot_is_free_again) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Ring::Filling filling;
  EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &filling), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &filling), WaitStatus::kTimeout);  // FILLING
  bench.ring.abandon(filling);
  bench.round(1, 0, layout, 7);
}

Ring::Filling reserved(RingBench& bench, uint64_t epoch, size_t bytes = 8) {
  Ring::Filling filling;
  EXPECT_EQ(bench.ring.begin_fill(epoch, bytes, kNow, &filling), WaitStatus::kOk);
  return filling;
}

TEST(a_producer_has_as_many_slots_in_the_making_as_there_are) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  for (uint64_t round = 0; round < 5; ++round) {
    std::vector<Ring::Filling> slots;
    for (int i = 0; i < 3; ++i) {
      slots.push_back(reserved(bench, 1));
      EXPECT_EQ(slots.back().seq, 3 * round + static_cast<uint64_t>(i));
      slots.back().data[0] = std::byte(i);
    }
    EXPECT_EQ(bench.fill(1, layout, 9), WaitStatus::kTimeout);
    EXPECT_EQ(bench.arrival(), Arrival::kTimeout);  // nothing has come
    for (int i = 0; i < 3; ++i) {
      const Ring::Filling& slot = slots[static_cast<size_t>(i)];
      EXPECT(bench.ring.commit(slot, layout));
      bench.credit(slot.seq, layout);
      EXPECT_EQ(bench.issue(), i);
      EXPECT_EQ(bench.arrival(), Arrival::kBatch);
      bench.ring.delivered();
      bench.reap();
    }
  }
}

TEST(slots_are_committed_in_their_order) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  const Ring::Filling first = reserved(bench, 1);
  const Ring::Filling second = reserved(bench, 1);
  EXPECT_THROW(bench.ring.commit(second, layout), InvalidArgument, "the next one is 0");
  EXPECT_THROW(bench.ring.commit(second, EntryKind::kError), InvalidArgument, "the next one is 0");
  EXPECT_THROW(bench.ring.put(1, EntryKind::kEnd, kNow), InvalidArgument, "the next one is 0");
  EXPECT(bench.ring.commit(first, layout));
  EXPECT(bench.ring.commit(second, layout));
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kOk);
}

TEST(an_error_takes_the_place_of_a_slot_in_the_making) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  const Ring::Filling first = reserved(bench, 1);
  const Ring::Filling second = reserved(bench, 1, 0);
  const Ring::Filling third = reserved(bench, 1);
  third.data[0] = std::byte{3};
  EXPECT(bench.ring.commit(first, EntryKind::kError));
  EXPECT(bench.ring.commit(second, EntryKind::kError));
  EXPECT(bench.ring.commit(third, layout));
  bench.credit(2, layout);
  EXPECT_EQ(bench.issue(), 3);
  for (const Arrival expected : {Arrival::kError, Arrival::kError, Arrival::kBatch}) {
    EXPECT_EQ(bench.arrival(), expected);
    bench.ring.delivered();
  }
  EXPECT_EQ(reserved(bench, 1).seq, uint64_t{3});  // errors freed their slots
}

TEST(slots_are_given_back_in_any_order) {
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}}) {
    RingBench bench(3);
    const SharedLayout layout = layout_of(8);
    bench.ring.open_epoch();
    bench.round(1, 0, layout, 1);
    std::vector<Ring::Filling> slots;
    for (int i = 0; i < 3; ++i) slots.push_back(reserved(bench, 1));
    for (const size_t which : order) bench.ring.abandon(slots[which]);
    for (uint64_t seq = 1; seq < 8; ++seq) bench.round(1, seq, layout, 4);
  }
}

TEST(the_newest_slot_is_given_back_and_its_number_taken_again) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  const Ring::Filling first = reserved(bench, 1);
  bench.ring.abandon(reserved(bench, 1));
  const Ring::Filling second = reserved(bench, 1);
  EXPECT_EQ(second.seq, uint64_t{1});
  EXPECT(bench.ring.commit(first, layout));
  EXPECT(bench.ring.commit(second, layout));
}

TEST(what_was_reserved_behind_a_slot_given_back_is_never_committed) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  const Ring::Filling first = reserved(bench, 1);
  const Ring::Filling second = reserved(bench, 1);
  bench.ring.abandon(first);
  EXPECT_THROW(bench.ring.commit(second, layout), InvalidArgument, "batch 1 cannot be committed");
  bench.ring.abandon(second);
  bench.round(1, 0, layout, 2);
}

TEST(a_smaller_batch_may_come_out_of_a_slot) {
  RingBench bench(1);
  bench.ring.open_epoch();
  const Ring::Filling filling = reserved(bench, 1, 1000);
  EXPECT_EQ(filling.bytes, size_t{1000});
  const SharedLayout layout = layout_of(8);
  EXPECT(bench.ring.commit(filling, layout));
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  EXPECT(work.layout == layout);
  EXPECT_EQ(bench.ring.stats().slot_bytes, size_t{1000});
}

TEST(nobody_else_is_in_the_way_of_a_filling_producer) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Ring::Filling filling;
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &filling), WaitStatus::kOk);
  bench.credit(0, layout);
  EXPECT_EQ(bench.issue(), 1);
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
  bench.reap();
  EXPECT(bench.ring.commit(filling, layout));
}

TEST(without_a_fitting_credit_the_consumer_is_asked) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  const SharedLayout other = layout_of(8);  // equal, but layouts are compared by address
  bench.ring.open_epoch();
  EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
  EXPECT_EQ(bench.fill(1, layout, 5), WaitStatus::kOk);
  EXPECT_EQ(bench.arrival(), Arrival::kNeedsCredit);
  bench.credit(0, other);
  EXPECT_EQ(bench.arrival(), Arrival::kNeedsCredit);
  const auto missing = bench.ring.uncredited(false);
  EXPECT_EQ(missing.size(), size_t{1});
  EXPECT(missing[0].seq == 0 && missing[0].filled);
  bench.credit(0, layout);
  EXPECT(bench.ring.uncredited(false).empty());
  EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
  EXPECT_EQ(bench.issue(), 5);
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
}

TEST(a_consumer_that_waits_is_told_that_credit_is_missing) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  bench.credit(0, layout_of(8));
  Actor consumer([&] { EXPECT_EQ(bench.arrival(kForever), Arrival::kNeedsCredit); },
                 bench.closer());
  consumer.wait_until_asleep();
  EXPECT_EQ(bench.fill(1, layout, 5), WaitStatus::kOk);
  consumer.join();
}

TEST(a_prefetch_thread_that_waits_takes_a_late_credit) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Actor prefetch([&] { EXPECT_EQ(bench.issue(), 9); }, bench.closer());
  prefetch.wait_until_asleep();
  EXPECT_EQ(bench.fill(1, layout, 9), WaitStatus::kOk);
  prefetch.wait_until_asleep();
  bench.credit(0, layout_of(8));
  prefetch.wait_until_asleep();
  bench.credit(0, layout);
  prefetch.join();
}

TEST(credits_stay_in_the_window) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_THROW(bench.credit(2, layout), InvalidArgument, "batch 2");
  EXPECT_EQ(bench.fill(1, layout, 0), WaitStatus::kOk);
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  EXPECT_THROW(bench.credit(0, layout), InvalidArgument, "batch 0");  // being issued
  EXPECT_THROW(bench.ring.withdraw_credit(0), InvalidArgument, "batch 0");
  bench.ring.issued(work, Ticket{});
  EXPECT_THROW(bench.credit(0, layout), InvalidArgument, "batch 0");  // issued
  EXPECT_THROW(bench.credit(2, layout), InvalidArgument, "batch 2");
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  EXPECT_THROW(bench.credit(0, layout), InvalidArgument, "batch 0");  // delivered
  bench.credit(2, layout);
  EXPECT_THROW(bench.credit(3, layout), InvalidArgument, "batch 3");
}

TEST(a_credit_serves_no_batch_behind_the_window) {
  // Batch 1 has the place and the layout of batch 0, whose memory is not taken yet.
  RingBench bench(1);
  const SharedLayout layout = layout_of(16);
  const uint64_t epoch = bench.ring.open_epoch().number;
  EXPECT_EQ(bench.fill(epoch, layout, 1), WaitStatus::kOk);
  bench.credit(0, layout);
  EXPECT_EQ(bench.issue(), 1);
  bench.reap();
  EXPECT_EQ(bench.fill(epoch, layout, 2), WaitStatus::kOk);
  Actor prefetch([&] { EXPECT_EQ(bench.issue(), 2); }, bench.closer());
  prefetch.wait_until_asleep();
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  bench.credit(1, layout);
  prefetch.join();
}

TEST(credits_must_suit_their_layout) {
  RingBench bench(2);
  bench.ring.open_epoch();
  Credit credit;
  EXPECT_THROW(bench.ring.give_credit(0, credit), InvalidArgument, "layout");
  credit.layout = layout_of(8);
  EXPECT_THROW(bench.ring.give_credit(0, credit), InvalidArgument, "one output per leaf");
  const BatchLayout::Leaf leaf{8, {}, 0};
  credit.layout = std::make_shared<const BatchLayout>(std::vector<BatchLayout::Leaf>{leaf, leaf});
  credit.outputs.assign(2, nullptr);
  EXPECT_THROW(bench.ring.give_credit(0, credit), InvalidArgument, "staging");
}

TEST(layouts_must_suit_their_pixels) {
  NormalizeSpec spec;
  spec.batch = spec.height = spec.width = 2;
  spec.channels = 3;
  const BatchLayout::Leaf leaf{23, spec, 0};
  EXPECT_THROW(BatchLayout{{leaf}}, InvalidArgument, "24 pixels");
  BatchLayout::Leaf augmented;
  augmented.augment = AugmentSpec{spec, spec.batch, 1, Fill::kZero, Blend::kFloats};
  augmented.bytes = 24;
  const size_t bytes = augmented.augment->record_bytes();
  const BatchLayout::Leaf records{bytes, {}, 0};
  const BatchLayout::Leaf short_records{bytes - 1, {}, 0};
  EXPECT(BatchLayout({augmented, records}).leaves()[1].records);
  EXPECT_EQ(BatchLayout({augmented, records}).leaves()[1].out_bytes(), size_t{0});
  EXPECT_THROW(BatchLayout({augmented}), InvalidArgument, "bytes of records");
  EXPECT_THROW(BatchLayout({augmented, short_records}), InvalidArgument, "bytes of records");
  EXPECT_THROW(BatchLayout({augmented, augmented, records}), InvalidArgument, "of its own");
  augmented.bytes = 23;
  EXPECT_THROW(BatchLayout({augmented, records}), InvalidArgument, "24 pixels");
}

TEST(a_withdrawn_credit_is_not_used) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  bench.credit(0, layout);
  EXPECT(bench.ring.withdraw_credit(0));
  EXPECT_EQ(bench.fill(1, layout, 3), WaitStatus::kOk);
  EXPECT_EQ(bench.arrival(), Arrival::kNeedsCredit);
}

TEST(uncredited_lists_the_window) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT(bench.ring.uncredited(false).empty());
  EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{3});
  EXPECT(!bench.ring.uncredited(true)[0].filled);
  bench.credit(1, layout);
  auto missing = bench.ring.uncredited(true);
  EXPECT_EQ(missing.size(), size_t{2});
  EXPECT(missing[0].seq == 0 && missing[1].seq == 2);
  EXPECT_EQ(bench.fill(1, layout, 0), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout_of(8), 1),
            WaitStatus::kOk);  // the credit for 1 is for another layout now
  missing = bench.ring.uncredited(false);
  EXPECT_EQ(missing.size(), size_t{2});
  EXPECT(missing[0].filled && missing[1].filled && missing[1].seq == 1);
  EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{3});
  EXPECT_EQ(bench.ring.put(1, EntryKind::kError, kNow), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{2});  // errors need none
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{1});  // being issued
}

TEST(errors_and_the_end_take_their_place) {
  RingBench bench(4);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.put(1, EntryKind::kError, kNow), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 2), WaitStatus::kOk);
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kOk);
  Actor prefetch(
      [&] {
        while (true) bench.issue();
      },
      bench.closer());
  const Arrival expected[] = {Arrival::kBatch, Arrival::kError, Arrival::kBatch, Arrival::kEnd};
  for (uint64_t seq = 0; seq < 4; ++seq) {
    if (expected[seq] == Arrival::kBatch) bench.credit(seq, layout);
    EXPECT_EQ(bench.arrival(kForever), expected[seq]);
    bench.ring.delivered();
  }
  EXPECT_EQ(bench.ring.stats().delivered, uint64_t{2});
}

TEST(errors_fill_the_window_and_no_more) {
  for (const size_t depth : {size_t{1}, size_t{3}}) {
    RingBench bench(depth);
    const SharedLayout layout = layout_of(8);
    bench.ring.open_epoch();
    Actor prefetch([&] { EXPECT_EQ(bench.issue(), 4); }, bench.closer());
    // Passed on, an error's slot is free: twice depth of them get in, and then it is full.
    for (size_t i = 0; i < 2 * depth; ++i) {
      EXPECT_EQ(bench.ring.put(1, EntryKind::kError, kForever), WaitStatus::kOk);
    }
    prefetch.wait_until_asleep();
    EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kTimeout);
    Actor producer([&] { EXPECT_EQ(bench.fill(1, layout, 4, kForever), WaitStatus::kOk); },
                   bench.closer());
    for (size_t i = 0; i < 2 * depth; ++i) {
      EXPECT_EQ(bench.arrival(kForever), Arrival::kError);
      bench.ring.delivered();
    }
    producer.join();
    EXPECT_EQ(bench.arrival(kForever), Arrival::kNeedsCredit);
    bench.credit(2 * depth, layout);
    EXPECT_EQ(bench.arrival(kForever), Arrival::kBatch);
    prefetch.join();
  }
}

TEST(a_credit_made_ahead_of_an_error_goes_with_it) {
  // The consumer made the memory for batch 0. Batch 2 has the same place in the window; if it took
  // that memory, the consumer would not look for it there.
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  bench.credit(0, layout);
  EXPECT_EQ(bench.ring.put(1, EntryKind::kError, kNow), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  bench.credit(1, layout);
  EXPECT_EQ(bench.issue(), 1);
  EXPECT_EQ(bench.arrival(), Arrival::kError);
  bench.ring.delivered();
  EXPECT_EQ(bench.fill(1, layout, 2), WaitStatus::kOk);
  const auto missing = bench.ring.uncredited(false);
  EXPECT_EQ(missing.size(), size_t{1});
  EXPECT_EQ(missing[0].seq, uint64_t{2});
}

TEST(a_credit_that_an_error_overtook_is_ignored) {
  // The consumer asked what is uncredited; before it answers, the end takes the place.
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{2});
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  bench.credit(0, layout);  // filled, not passed on
  bench.credit(1, layout);
  EXPECT_EQ(bench.issue(), 1);
  EXPECT(!bench.ring.withdraw_credit(0));  // passed on
  bench.credit(0, layout);
  EXPECT_EQ(bench.arrival(), Arrival::kEnd);
  bench.ring.delivered();
  const auto missing = bench.ring.uncredited(true);
  EXPECT(!missing.empty() && missing[0].seq == 2);
}

TEST(nothing_can_be_delivered_that_has_not_arrived) {
  RingBench bench(2);
  bench.ring.open_epoch();
  EXPECT_THROW(bench.ring.delivered(), InvalidArgument, "nothing has arrived");
}

TEST(statistics_add_up) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(1000);
  bench.ring.open_epoch();
  for (uint64_t seq = 0; seq < 5; ++seq) bench.round(1, seq, layout, 1);
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  EXPECT_EQ(bench.arrival(Ring::Clock::now() + std::chrono::milliseconds(1)),
            Arrival::kNeedsCredit);
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  EXPECT_EQ(bench.fill(1, layout, 1, Ring::Clock::now() + std::chrono::milliseconds(1)),
            WaitStatus::kTimeout);
  bench.credit(5, layout);
  EXPECT_EQ(bench.arrival(Ring::Clock::now() + std::chrono::milliseconds(1)), Arrival::kTimeout);
  const Ring::Stats stats = bench.ring.stats();
  EXPECT_EQ(stats.filled, uint64_t{7});
  EXPECT_EQ(stats.delivered, uint64_t{5});
  EXPECT_EQ(stats.bytes, uint64_t{7 * 1024});
  EXPECT_EQ(stats.slot_bytes, uint64_t{2 * 1024});
  EXPECT(stats.pinned && stats.why_not_pinned.empty());
  EXPECT(stats.producer_wait_s >= 0.001 && stats.consumer_wait_s >= 0.001);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
