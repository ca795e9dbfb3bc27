// What ends an epoch or the whole ring: cancel, a new epoch, fail, close.

#include "ring_test.h"

namespace fastloader::testing {
namespace {

TEST(a_stale_producer_leaves_the_new_epoch_alone) {
  // Its slot is in its hands when the epoch ends; the new producer gets it only afterwards.
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Ring::Filling stale;
  EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &stale), WaitStatus::kOk);
  bench.ring.cancel();
  const Ring::Epoch epoch = bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(epoch.number, layout, 5), WaitStatus::kTimeout);
  Actor producer([&] { EXPECT_EQ(bench.fill(epoch.number, layout, 5, kForever), WaitStatus::kOk); },
                 bench.closer());
  producer.wait_until_asleep();
  std::memset(stale.data, 9, 8);
  EXPECT(!bench.ring.commit(stale, layout));
  producer.join();
  EXPECT_EQ(bench.fill(1, layout, 9), WaitStatus::kOver);
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kOver);
  bench.credit(epoch.first_seq, layout);
  EXPECT_EQ(bench.issue(), 5);
  EXPECT_EQ(bench.ring.stats().filled, uint64_t{1});
}

TEST(a_stale_producer_that_abandons_frees_its_slot) {
  RingBench bench(1);
  bench.ring.open_epoch();
  Ring::Filling filling;
  EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &filling), WaitStatus::kOk);
  const Ring::Epoch epoch = bench.ring.open_epoch();
  bench.ring.abandon(filling);
  bench.round(epoch.number, epoch.first_seq, layout_of(8), 1);
}

TEST(slots_in_the_making_outlive_their_epoch) {
  // The new producer gets each only when its old holder lets go, in any order.
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  bench.round(1, 0, layout, 1);
  std::vector<Ring::Filling> stale(3);  // of batches 1, 2 and 3
  for (Ring::Filling& each : stale)
    EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &each), WaitStatus::kOk);
  bench.ring.cancel();
  const Ring::Epoch epoch = bench.ring.open_epoch();
  EXPECT_EQ(epoch.first_seq, uint64_t{1});
  EXPECT_EQ(bench.fill(epoch.number, layout, 5), WaitStatus::kTimeout);
  bench.ring.abandon(stale[1]);
  EXPECT_EQ(bench.fill(epoch.number, layout, 5),
            WaitStatus::kTimeout);  // the next one is another's
  Actor producer([&] { EXPECT_EQ(bench.fill(epoch.number, layout, 5, kForever), WaitStatus::kOk); },
                 bench.closer());
  producer.wait_until_asleep();
  stale[0].data[0] = std::byte{9};
  bench.ring.abandon(stale[0]);
  producer.join();
  Ring::Filling next;
  EXPECT_EQ(bench.ring.begin_fill(epoch.number, 8, kNow, &next),
            WaitStatus::kOk);  // that of stale[1]
  EXPECT(next.data == stale[1].data);
  std::memset(next.data, 6, 8);
  EXPECT_EQ(bench.fill(epoch.number, layout, 7), WaitStatus::kTimeout);
  stale[2].data[0] = std::byte{9};
  EXPECT(!bench.ring.commit(stale[2], layout));  // told, and given back
  EXPECT(bench.ring.commit(next, layout));
  EXPECT_EQ(bench.fill(epoch.number, layout, 7), WaitStatus::kOk);
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    bench.credit(seq, layout);
    EXPECT_EQ(bench.issue(), static_cast<int>(seq) + 4);
  }
}

TEST(slots_of_many_epochs_are_in_the_making_at_once) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Ring::Filling slots[3];
  for (Ring::Filling& each : slots)
    EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &each), WaitStatus::kOk);
  // Each epoch gets one slot further, and is cancelled with it in its hands.
  for (size_t count = 1; count <= 3; ++count) {
    const uint64_t epoch = bench.ring.open_epoch().number;
    bench.ring.abandon(slots[0]);
    if (count > 1) bench.ring.abandon(slots[1]);
    for (size_t i = 0; i < std::min<size_t>(count, 2); ++i) {
      EXPECT_EQ(bench.ring.begin_fill(epoch, 8, kNow, &slots[i]), WaitStatus::kOk);
    }
  }
  EXPECT(slots[0].epoch == 4 && slots[1].epoch == 4 && slots[2].epoch == 1);
  const Ring::Epoch epoch = bench.ring.open_epoch();
  for (const Ring::Filling& each : slots) bench.ring.abandon(each);
  for (uint64_t i = 0; i < 9; ++i) bench.round(epoch.number, epoch.first_seq + i, layout, 3);
}

TEST(cancel_wakes_a_producer_though_the_device_frees_nothing) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  bench.credit(0, layout);
  bench.issue();  // and never reaped
  Actor producer([&] { EXPECT_EQ(bench.fill(1, layout, 2, kForever), WaitStatus::kOver); },
                 bench.closer());
  producer.wait_until_asleep();
  bench.ring.cancel();
  producer.join();
  const uint64_t epoch = bench.ring.open_epoch().number;
  Actor putter(
      [&] { EXPECT_EQ(bench.ring.put(epoch, EntryKind::kEnd, kForever), WaitStatus::kOver); },
      bench.closer());
  putter.wait_until_asleep();
  bench.ring.open_epoch();
  putter.join();
}

TEST(cancel_frees_what_was_not_issued) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  for (int value = 0; value < 3; ++value) EXPECT_EQ(bench.fill(1, layout, value), WaitStatus::kOk);
  bench.credit(0, layout);
  EXPECT_EQ(bench.issue(), 0);
  const Ticket newest = bench.ring.cancel();
  EXPECT(newest.event == &bench.event && newest.generation == 1);
  const Ring::Epoch epoch = bench.ring.open_epoch();
  EXPECT_EQ(epoch.first_seq, uint64_t{3});
  EXPECT_EQ(bench.fill(epoch.number, layout, 7),
            WaitStatus::kTimeout);  // slot 0 is still being read
  bench.reap();
  for (uint64_t seq = 3; seq < 6; ++seq) {
    EXPECT_EQ(bench.ring.uncredited(true).size(), size_t{3});  // the old credits are gone
    bench.round(epoch.number, seq, layout, 7);
  }
}

TEST(cancel_answers_the_newest_ticket) {
  RingBench bench(4);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT(bench.ring.cancel().event == nullptr);
  uint64_t epoch = bench.ring.open_epoch().number;
  for (uint64_t seq = 0; seq < 3; ++seq) {
    EXPECT_EQ(bench.fill(epoch, layout, 0), WaitStatus::kOk);
    bench.credit(seq, layout);
    bench.issue();
  }
  EXPECT_EQ(bench.ring.put(epoch, EntryKind::kError, kNow), WaitStatus::kOk);
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);
  bench.ring.delivered();
  EXPECT_EQ(bench.ring.cancel().generation, uint64_t{3});
  for (int i = 0; i < 3; ++i) bench.reap();
  EXPECT(bench.ring.cancel().event == nullptr);
  epoch = bench.ring.open_epoch().number;
  bench.round(epoch, 4, layout, 1);
  EXPECT(bench.ring.cancel().event == nullptr);  // issued, but delivered
}

TEST(a_ticket_of_a_batch_before_is_not_the_newest) {
  for (const bool delivers : {true, false}) {
    RingBench bench(2);
    const SharedLayout layout = layout_of(8);
    const uint64_t before = bench.ring.open_epoch().number;
    for (uint64_t seq = 0; seq < 2; ++seq) {
      EXPECT_EQ(bench.fill(before, layout, 1), WaitStatus::kOk);
      bench.credit(seq, layout);
      bench.issue();
      if (!delivers) continue;
      EXPECT_EQ(bench.arrival(), Arrival::kBatch);
      bench.ring.delivered();
    }
    const uint64_t epoch = delivers ? before : bench.ring.open_epoch().number;
    for (int i = 0; i < 2; ++i) bench.reap();
    EXPECT_EQ(bench.fill(epoch, layout, 2), WaitStatus::kOk);
    bench.credit(2, layout);
    bench.issue();
    // An error has no ticket, and its place in the window had another batch's.
    EXPECT_EQ(bench.ring.put(epoch, EntryKind::kError, kNow), WaitStatus::kOk);
    Actor prefetch(
        [&] {
          Ring::Issue none;
          EXPECT(!bench.ring.wait_issue(&none));
        },
        bench.closer());
    prefetch.wait_until_asleep();
    EXPECT_EQ(bench.ring.cancel().generation, uint64_t{3});
    bench.ring.close();
    prefetch.join();
  }
}

TEST(who_asks_after_a_cancelled_epoch_asks_anew) {
  RingBench bench(1);
  bench.ring.open_epoch();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
  EXPECT_EQ(bench.ring.stats().asked, uint64_t{1});
  bench.ring.open_epoch();
  EXPECT_EQ(bench.arrival(), Arrival::kTimeout);
  EXPECT_EQ(bench.ring.stats().asked, uint64_t{2});
}

TEST(cancel_waits_for_an_issue_in_progress) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  for (uint64_t seq = 0; seq < 2; ++seq) {
    EXPECT_EQ(bench.fill(1, layout, 4), WaitStatus::kOk);
    bench.credit(seq, layout);
  }
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  Actor consumer([&] { EXPECT_EQ(bench.ring.cancel().generation, uint64_t{1}); },
                 [&] { bench.ring.issued(work, Ticket{}); });
  consumer.wait_until_asleep();
  EXPECT_EQ(std::to_integer<int>(*work.data), 4);
  EXPECT(work.credit->layout == layout);
  // The second batch is ready too; it must not be started any more.
  Actor prefetch(
      [&] {
        bench.ring.issued(work, Ticket{&bench.event, 1});
        Ring::Issue none;
        EXPECT(!bench.ring.wait_issue(&none));
      },
      bench.closer());
  consumer.join();
  prefetch.wait_until_asleep();
  bench.ring.close();
  prefetch.join();
}

TEST(fail_is_sticky_and_the_first_cause_wins) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  bench.credit(0, layout);
  bench.issue();
  bench.ring.fail("the cable is cut");
  bench.ring.fail("a consequence");
  for (int i = 0; i < 2; ++i) EXPECT_THROW(bench.arrival(), BackendError, "cable");
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOver);
  EXPECT_EQ(bench.ring.put(1, EntryKind::kEnd, kNow), WaitStatus::kOver);
  EXPECT_EQ(bench.ring.cancel().generation, uint64_t{1});
  const uint64_t epoch = bench.ring.open_epoch().number;
  EXPECT_EQ(bench.fill(epoch, layout, 1), WaitStatus::kOver);
  EXPECT_THROW(bench.arrival(), BackendError, "cable");
  bench.ring.close();
  EXPECT_THROW(bench.arrival(), BackendError, "cable");
}

TEST(a_failure_without_words_is_one_too) {
  RingBench bench(2);
  bench.ring.open_epoch();
  bench.ring.fail("");
  EXPECT_THROW(bench.arrival(), BackendError, "failed");
}

/// Producer and consumer blocked, the prefetch thread waiting for a credit, the reaper for a batch.
template <typename End>
void with_everyone_asleep(End end) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  Door closing;
  Actor prefetch(
      [&] {
        Ring::Issue none;
        EXPECT(!bench.ring.wait_issue(&none));
      },
      bench.closer());
  Actor reaper(
      [&] {
        Ring::Reap none;
        EXPECT(!bench.ring.wait_reap(&none));
      },
      bench.closer());
  Actor consumer(
      [&] {
        try {
          bench.arrival(kForever);
          EXPECT(false);
        } catch (const Error&) {
        }
      },
      bench.closer());
  consumer.wait_until_asleep();
  prefetch.wait_until_asleep();
  reaper.wait_until_asleep();
  end(bench, consumer);
  consumer.join();
  bench.ring.close();
  prefetch.join();
  reaper.join();
}

TEST(close_wakes_everyone) {
  with_everyone_asleep([](RingBench& bench, Actor&) { bench.ring.close(); });
}

TEST(fail_wakes_the_consumer) {
  with_everyone_asleep([](RingBench& bench, Actor&) { bench.ring.fail("broken"); });
}

TEST(close_and_fail_wake_the_producer) {
  for (const bool failing : {true, false}) {
    for (const bool batch : {true, false}) {
      RingBench bench(1);
      const SharedLayout layout = layout_of(8);
      bench.ring.open_epoch();
      EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
      Actor producer(
          [&] {
            EXPECT_EQ(batch ? bench.fill(1, layout, 2, kForever)
                            : bench.ring.put(1, EntryKind::kEnd, kForever),
                      WaitStatus::kOver);
          },
          bench.closer());
      producer.wait_until_asleep();
      if (failing) {
        bench.ring.fail("broken");
      } else {
        bench.ring.close();
      }
      producer.join();
    }
  }
}

TEST(close_in_every_state) {
  // 0: nothing, 1: FILLING, 2: FILLED, 3: ISSUING, 4: ISSUED, 5: delivered, 6: being reaped
  for (int state = 0; state <= 6; ++state) {
    RingBench bench(1);
    const SharedLayout layout = layout_of(8);
    bench.ring.open_epoch();
    Ring::Filling filling;
    if (state >= 1) EXPECT_EQ(bench.ring.begin_fill(1, 8, kNow, &filling), WaitStatus::kOk);
    if (state >= 2) EXPECT(bench.ring.commit(filling, layout));
    Ring::Issue work;
    if (state >= 3) {
      bench.credit(0, layout);
      EXPECT(bench.ring.wait_issue(&work));
    }
    if (state >= 4) bench.ring.issued(work, Ticket{&bench.event, 1});
    if (state >= 5) bench.ring.delivered();
    Ring::Reap reap;
    if (state >= 6) EXPECT(bench.ring.wait_reap(&reap));
    bench.ring.close();
    bench.ring.close();
    if (state == 1) EXPECT(!bench.ring.commit(filling, layout));
    if (state == 3) bench.ring.issued(work, Ticket{&bench.event, 1});
    EXPECT(!bench.ring.wait_issue(&work));
    if (state >= 3 && state <= 5) EXPECT(bench.ring.wait_reap(&reap));  // what was issued
    if (state >= 3) bench.ring.reaped(reap);
    EXPECT(!bench.ring.wait_reap(&reap));
    EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOver);
    EXPECT_THROW(bench.arrival(), Error, "closed");
    const Ticket newest = bench.ring.cancel();
    EXPECT_EQ(newest.event != nullptr, state == 3 || state == 4);
  }
}

TEST(the_reaper_stays_for_a_batch_that_is_being_issued) {
  RingBench bench(1);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  bench.credit(0, layout);
  Ring::Issue work;
  EXPECT(bench.ring.wait_issue(&work));
  bench.ring.close();
  Actor reaper(
      [&] {
        bench.reap();
        Ring::Reap none;
        EXPECT(!bench.ring.wait_reap(&none));
      },
      [&] { bench.ring.issued(work, Ticket{}); });
  reaper.wait_until_asleep();
  bench.ring.issued(work, Ticket{&bench.event, 1});
  reaper.join();
}

TEST(a_consumer_of_a_cancelled_epoch_is_told_so) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  for (bool opened : {false, true}) {
    const Ring::Epoch epoch = bench.ring.open_epoch();
    Ticket ticket;
    Actor consumer(
        [&] {
          EXPECT_EQ(bench.ring.wait_arrival(kForever, &ticket, epoch.number), Arrival::kOver);
        },
        bench.closer());
    consumer.wait_until_asleep();
    if (opened) {
      // Nor may it see what comes for the next one.
      const Ring::Epoch next = bench.ring.open_epoch();
      EXPECT_EQ(bench.fill(next.number, layout, 1), WaitStatus::kOk);
      bench.credit(next.first_seq, layout);
      bench.issue();
    } else {
      bench.ring.cancel();
    }
    consumer.join();
    EXPECT(ticket.event == nullptr);
    EXPECT_EQ(bench.ring.wait_arrival(kForever, &ticket, epoch.number), Arrival::kOver);
  }
  EXPECT_EQ(bench.arrival(), Arrival::kBatch);  // the next one's consumer finds it
}

TEST(progress_tells_which_calls_were_made) {
  RingBench bench(2);
  const SharedLayout layout = layout_of(8);
  bench.ring.open_epoch();
  const auto is = [&](uint64_t delivered, uint64_t filled) {
    EXPECT_EQ(bench.ring.progress().delivered, delivered);
    EXPECT_EQ(bench.ring.progress().filled, filled);
  };
  is(0, 0);
  EXPECT_EQ(bench.fill(1, layout, 1), WaitStatus::kOk);
  is(0, 1);
  bench.credit(0, layout);
  bench.issue();
  is(0, 1);
  bench.ring.delivered();
  is(1, 1);
}

TEST(numbers_go_on_over_many_epochs) {
  RingBench bench(3);
  const SharedLayout layout = layout_of(8);
  uint64_t seq = 0;
  for (uint64_t number = 1; number <= 300; ++number) {
    const Ring::Epoch epoch = bench.ring.open_epoch();
    EXPECT_EQ(epoch.first_seq, seq);
    const uint64_t batches = number % 7;
    for (uint64_t i = 0; i < batches; ++i) bench.round(epoch.number, seq++, layout, int(i));
    const uint64_t left_behind = number % 4;
    for (uint64_t i = 0; i < left_behind; ++i, ++seq) {
      EXPECT_EQ(bench.fill(epoch.number, layout, 1), WaitStatus::kOk);
    }
    if (number % 2 == 0) bench.ring.cancel();
  }
  EXPECT_EQ(bench.ring.stats().filled, seq);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
