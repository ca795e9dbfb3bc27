// Batches of which some leaves lie in the prefetcher's memory: the device reads them there, and
// only then the memory is free.

#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// A batch's addresses, of which some lead into the prefetcher's memory.
struct Placed {
  Placed(Prefetcher& prefetcher, const Batch& batch, unsigned held) : addresses(batch.addresses()) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      if ((held >> i & 1) == 0) {
        copied += batch.in[i].size();
        continue;
      }
      memory.push_back(prefetcher.memory()->share(batch.in[i].size() + 300));
      std::byte* const place = memory.back().get() + 256;  // not where the block begins
      if (!batch.in[i].empty()) std::memcpy(place, batch.in[i].data(), batch.in[i].size());
      addresses[i] = place;
    }
  }

  std::vector<const void*> addresses;
  std::vector<std::shared_ptr<std::byte>> memory;
  size_t copied = 0;
};

size_t in_use(Prefetcher& prefetcher) { return prefetcher.memory()->stats().in_use; }

/// Pushes a batch of one held leaf, whose only holder is the ring then.
void push_held(Prefetcher& prefetcher, uint64_t epoch, const Batch& batch) {
  const Placed placed(prefetcher, batch, 1);
  EXPECT(prefetcher.push(epoch, batch.layout, placed.addresses, kNow) == WaitStatus::kOk);
}

/// A whole epoch, in which every second batch is held.
void expect_a_good_epoch(Backend& backend, Prefetcher& prefetcher, unsigned seed) {
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  std::map<uint64_t, Batch> batches;
  for (unsigned i = 0; i < 4; ++i) batches[epoch.first_seq + i] = plain_batch({40 + i}, seed + i);
  Consumer consumer(backend, prefetcher, epoch.first_seq);
  for (const auto& [seq, batch] : batches) {
    const Placed placed(prefetcher, batch, seq % 2);
    EXPECT(prefetcher.push(epoch.number, batch.layout, placed.addresses, kForever) ==
           WaitStatus::kOk);
    EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
    EXPECT_EQ(consumer.take()->wrong(batch), -1);
  }
}

/// Direct, staged and empty leaves, an image and an augmented one with its records.
Batch mixed_batch(unsigned seed) {
  Batch batch = image_batch(seed, 3);
  std::vector<BatchLayout::Leaf> leaves = batch.layout->leaves();
  leaves.back().records = false;  // for the new layout to find out
  const size_t large = BatchLayout::kDirectBytes + 3;
  leaves.insert(leaves.begin() + 1, BatchLayout::Leaf{large, {}, 0});
  batch.in.insert(batch.in.begin() + 1, pattern(large, seed));
  batch.out.insert(batch.out.begin() + 1, batch.in[1]);
  batch.layout = std::make_shared<const BatchLayout>(std::move(leaves));
  return batch;
}

TEST(any_leaves_may_lie_elsewhere) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    HostBackend backend;
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    const Batch batch = mixed_batch(seed);
    std::map<uint64_t, Batch> batches;
    Consumer consumer(backend, prefetcher, 0);
    size_t copied = 0;
    const unsigned all = (1U << batch.in.size()) - 1;
    for (uint64_t seq = 0; seq <= all; ++seq) {
      batches[seq] = batch;
      const Placed placed(prefetcher, batch, static_cast<unsigned>(seq));
      copied += placed.copied;
      EXPECT(prefetcher.push(epoch, batch.layout, placed.addresses, kForever) == WaitStatus::kOk);
      EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
      EXPECT_EQ(consumer.take()->wrong(batch), -1);
    }
    EXPECT_EQ(prefetcher.ring().stats().copied, copied);
    EXPECT_EQ(prefetcher.ring().stats().bytes, (all + 1) * batch.layout->packed_bytes());
  }
}

TEST(a_slot_has_room_for_the_other_leaves_only) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({3 << 20, 8}, 1);
  push_held(prefetcher, epoch, batch);
  EXPECT_EQ(prefetcher.ring().stats().slot_bytes, 4096u);
}

TEST(the_limit_is_for_all_of_a_batch) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 1, 10000);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({9900, 300}, 1);
  const Placed placed(prefetcher, batch, 1);
  EXPECT_THROW(prefetcher.push(epoch, batch.layout, placed.addresses, kNow), InvalidArgument,
               "at most 10000");
}

TEST(memory_is_held_until_the_device_has_read_it) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);  // so that the copy is queued and cannot begin
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  push_held(prefetcher, epoch, batch);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.deliver(ticket, stream->handle());
  EXPECT_EQ(in_use(prefetcher), 1u);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(memory.wrong(batch), -1);
  prefetcher.ring().wait_reaped();
  prefetcher.close();
  EXPECT_EQ(in_use(prefetcher), 0u);
}

TEST(cancel_lets_go_of_what_was_not_issued) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  for (int i = 0; i < 2; ++i) push_held(prefetcher, epoch, batch);
  EXPECT_EQ(in_use(prefetcher), 2u);
  prefetcher.cancel({0});
  EXPECT_EQ(in_use(prefetcher), 0u);
  const Placed placed(prefetcher, batch, 1);
  EXPECT(prefetcher.push(epoch, batch.layout, placed.addresses, kNow) == WaitStatus::kOver);
  expect_a_good_epoch(backend, prefetcher, 3);
}

TEST(cancel_keeps_what_the_device_is_to_read) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  for (int i = 0; i < 2; ++i) push_held(prefetcher, epoch, batch);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.cancel({stream->handle()});  // does not wait on the host
  EXPECT_EQ(in_use(prefetcher), 1u);
  gate.open();
  expect_a_good_epoch(backend, prefetcher, 3);
  stream->synchronize();
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(after_a_failure_memory_is_held_as_long_as_the_slots) {
  // Where an order was refused, nobody knows when the device has read.
  std::shared_ptr<PinnedPool> pool;
  {
    HookedBackend backend;
    backend.set_before([](const char* call) {
      if (std::strcmp(call, "record") == 0) throw Refused();
    });
    Prefetcher prefetcher(backend, 0, 1, kLimit);
    pool = prefetcher.memory();
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    const Batch batch = plain_batch({100}, 1);
    const Memory memory(backend, *batch.layout);
    prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
    push_held(prefetcher, epoch, batch);
    Ticket ticket;
    EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "refused");
    prefetcher.ring().wait_reaped();
    prefetcher.cancel({0});
    prefetcher.close();
    EXPECT_EQ(pool->stats().in_use, 1u);
  }
  EXPECT_EQ(pool->stats().in_use, 0u);
}

TEST(memory_may_outlive_its_prefetcher) {
  HostBackend backend;
  std::shared_ptr<std::byte> held;
  std::shared_ptr<PinnedPool> pool;
  {
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    pool = prefetcher.memory();
    held = pool->share(100);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    push_held(prefetcher, epoch, plain_batch({100}, 1));  // and nobody ever takes it
    EXPECT_EQ(pool->stats().in_use, 2u);
  }
  EXPECT_EQ(pool->stats().in_use, 1u);
  std::memset(held.get(), 1, 100);
}

TEST(blocks_that_are_used_again_spoil_nothing) {
  HostBackendOptions options;
  options.delay_seed = 5;
  options.max_delay = std::chrono::microseconds(80);
  HostBackend backend(options);
  Prefetcher prefetcher(backend, 0, 3, kLimit);
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  std::map<uint64_t, Batch> made;
  const Batch first = plain_batch({3000, 20, 500}, 1);
  for (unsigned i = 0; i < 60; ++i) made[i] = refilled(first, 10 * i);
  const std::map<uint64_t, Batch>& batches = made;
  Actor producer(
      [&] {
        for (const auto& [seq, batch] : batches) {
          const Placed placed(prefetcher, batch, seq % 5 == 0 ? 0 : 5);
          EXPECT(prefetcher.push(epoch.number, batch.layout, placed.addresses, kForever) ==
                 WaitStatus::kOk);
        }
      },
      [&] { prefetcher.close(); });
  Consumer consumer(backend, prefetcher, 0);
  for (const auto& [seq, batch] : batches) {
    EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
    EXPECT_EQ(consumer.take()->wrong(batch), -1);
  }
  producer.join();
  // Two of each batch in a slot, of the one that waits for a slot, and of one that is just let go.
  EXPECT(prefetcher.memory()->stats().blocks <= 2 * (3 + 2));
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
