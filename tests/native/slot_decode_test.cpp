// Pictures decoded straight into the ring's slots: what arrives, and what becomes of slots whose
// epoch ends while threads write into them. The test plays prefetch thread, reaper and consumer.

#include <algorithm>
#include <deque>
#include <random>

#include "decode_pool_test.h"
#include "pipeline/reservation.h"
#include "ring_test.h"

namespace fastloader::testing {
namespace {

/// A loader whose batches lie in the slots of a ring.
struct SlotLoader {
  SlotLoader(uint64_t samples, size_t threads, size_t depth)
      : owned(std::make_shared<RingBench>(depth)),
        bench(*owned),
        ring(owned, &bench.ring),
        loader(samples, threads) {}

  size_t bytes(size_t samples) const { return samples * loader.job->sample_bytes(); }

  std::shared_ptr<Reservation> reserve(uint64_t epoch, size_t samples,
                                       Ring::Clock::time_point deadline = kForever) {
    Ring::Filling filling;
    const size_t bytes = layout_of(this->bytes(samples))->packed_bytes();
    if (bench.ring.begin_fill(epoch, bytes, deadline, &filling) != WaitStatus::kOk) return nullptr;
    return std::make_shared<Reservation>(ring, filling);
  }

  Batch batch(const std::shared_ptr<Reservation>& place, Indices indices, uint64_t seed = 7) const {
    return std::make_shared<DecodeBatch>(
        loader.job, loader.quota, std::move(indices), std::vector<uint64_t>{seed},
        [&](size_t) { return DecodeBatch::Memory(place, place->data()); });
  }

  /// The whole batch as it arrives: issued, compared with a decoder of its own, delivered, reaped.
  void expect_arrival(uint64_t seq, const SharedLayout& layout, const Indices& indices,
                      uint64_t seed) {
    bench.credit(seq, layout);
    Ring::Issue work;
    EXPECT(bench.ring.wait_issue(&work));
    EXPECT_EQ(work.seq, seq);
    const auto* from = reinterpret_cast<const uint8_t*>(work.data);
    for (size_t i = 0; i < indices.size(); ++i) {
      const std::vector<uint8_t> wanted = decoded_alone(loader, indices[i], seed);
      EXPECT(std::equal(wanted.begin(), wanted.end(), from + bytes(i)));
    }
    bench.ring.issued(work, Ticket{});
    EXPECT_EQ(bench.arrival(), Arrival::kBatch);
    bench.ring.delivered();
    bench.reap();
  }

  const std::shared_ptr<RingBench> owned;  // a thread may be the last to let go of it
  RingBench& bench;
  const std::shared_ptr<Ring> ring;
  const Loader loader;
};

TEST(batches_lie_in_their_slots) {
  DecodePool pool;
  SlotLoader slots(12, 3, 3);
  pool.grow(3);
  const uint64_t epoch = slots.bench.ring.open_epoch().number;
  const SharedLayout layout = layout_of(slots.bytes(4));
  for (uint64_t seq = 0; seq < 9; seq += 3) {
    std::shared_ptr<Reservation> places[3];
    Batch batches[3];
    for (uint64_t i = 0; i < 3; ++i) {
      places[i] = slots.reserve(epoch, 4);
      batches[i] = submitted(pool, slots.batch(places[i], range(4 * i, 4 * i + 4), seq + i));
    }
    for (uint64_t i = 0; i < 3; ++i) {
      expect_done(pool, batches[i]);
      EXPECT(batches[i]->sample(0) == places[i]->data());
      EXPECT(places[i]->commit(layout, {places[i]->data()}));
      slots.expect_arrival(seq + i, layout, range(4 * i, 4 * i + 4), seq + i);
    }
  }
  EXPECT_EQ(slots.bench.ring.stats().copied, uint64_t{0});
  EXPECT_EQ(slots.loader.memory->stats().made, uint64_t{0});
}

TEST(a_thread_that_writes_late_holds_its_slot_and_no_other) {
  DecodePool pool;
  SlotLoader slots(8, 2, 2);
  slots.loader.source->hold({0});
  pool.grow(2);
  Ring& ring = slots.bench.ring;
  const uint64_t first = ring.open_epoch().number;
  auto late = slots.reserve(first, 1);
  auto other = slots.reserve(first, 1);
  std::byte* const held = late->data();
  Batch writes = submitted(pool, slots.batch(late, {0}));
  slots.loader.source->wait_begun(1);
  Batch ready = submitted(pool, slots.batch(other, {1}));
  expect_done(pool, ready);
  ring.cancel();
  // Everybody forgets the two; one thread has not.
  pool.stop(*writes);
  pool.stop(*ready);
  writes.reset();
  ready.reset();
  late.reset();
  other.reset();
  const uint64_t second = ring.open_epoch().number;
  EXPECT(slots.reserve(second, 1, kNow) == nullptr);  // that slot is the next one
  Actor producer(
      [&] {
        const auto mine = slots.reserve(second, 1);
        EXPECT(mine != nullptr && mine->data() == held);
        const Batch again = submitted(pool, slots.batch(mine, {3}, 11));
        expect_done(pool, again);
        EXPECT(mine->commit(layout_of(slots.bytes(1)), {mine->data()}));
      },
      [&] { slots.loader.source->open_all(); });
  producer.wait_until_asleep();
  slots.loader.source->open(0);  // it finishes its sample, in a slot that is still its own
  producer.join();
  slots.bench.ring.cancel();
}

/// What Python does when iterators are dropped, again and again, at any moment.
TEST(epochs_end_at_any_moment_and_the_next_one_is_whole) {
  static unsigned seed = 0;
  std::mt19937 random(++seed);
  DecodePool pool;
  SlotLoader slots(16, 3, 1 + seed % 4);
  pool.grow(4);
  const size_t depth = slots.bench.ring.depth();
  const SharedLayout layout = layout_of(slots.bytes(3));
  for (uint64_t number = 0; number < 40; ++number) {
    const Ring::Epoch epoch = slots.bench.ring.open_epoch();
    uint64_t next = epoch.first_seq;
    std::deque<std::pair<std::shared_ptr<Reservation>, Batch>> flight;
    const auto indices = [](uint64_t seq) { return range(seq % 13, seq % 13 + 3); };
    for (size_t whole = random() % 4;; --whole) {
      while (flight.size() < depth) {
        auto place = slots.reserve(epoch.number, 3);
        EXPECT(place != nullptr);
        const uint64_t seq = next + flight.size();
        Batch batch = submitted(pool, slots.batch(place, indices(seq), seq));
        flight.emplace_back(std::move(place), std::move(batch));
      }
      if (whole == 0) break;
      auto [slot, done] = std::move(flight.front());
      flight.pop_front();
      expect_done(pool, done);
      EXPECT(slot->commit(layout, {slot->data()}));
      slots.expect_arrival(next, layout, indices(next), next);
      ++next;
    }
    slots.bench.ring.cancel();
    for (auto& [place, batch] : flight) {
      if (random() % 2 == 0) pool.stop(*batch);
      if (random() % 2 == 0) pool.cancel(*batch);
    }
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
