// An epoch that ends early, at every point of a batch's way: the next epoch gets its own data, and
// memory that was offered and not delivered is not written any more.

#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// A whole epoch of three batches on the host's stream.
void expect_a_good_epoch(Backend& backend, Prefetcher& prefetcher, unsigned seed) {
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  std::map<uint64_t, Batch> batches;
  for (unsigned i = 0; i < 3; ++i) {
    batches[epoch.first_seq + i] = plain_batch({40 + i, 8}, seed + 10 * i);
  }
  Actor producer(
      [&] {
        for (const auto& [seq, batch] : batches) {
          EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever) ==
                 WaitStatus::kOk);
        }
      },
      [&] { prefetcher.close(); });
  Consumer consumer(backend, prefetcher, epoch.first_seq);
  const std::map<uint64_t, Batch>& known = batches;
  for (const auto& [seq, batch] : known) {
    EXPECT(consumer.next(known, 0) == Arrival::kBatch);
    EXPECT_EQ(consumer.take()->wrong(batch), -1);
  }
  producer.join();
}

TEST(cancel_before_anything_is_pushed) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Memory memory(backend, *batch.layout);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  prefetcher.cancel({0});
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOver);
  expect_a_good_epoch(backend, prefetcher, 3);
  EXPECT(memory.untouched());
}

TEST(cancel_with_batches_that_have_no_credit) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Batch other = plain_batch({100}, 1);
  const Memory memory(backend, *batch.layout);
  prefetcher.give_credit(0, other.layout, memory.outputs(), nullptr, 0);  // for another layout
  for (int i = 0; i < 2; ++i) {
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  }
  Actor producer(
      [&] {
        EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) ==
               WaitStatus::kOver);
      },
      [&] { prefetcher.close(); });
  producer.wait_until_asleep();
  prefetcher.cancel({0});
  producer.join();
  expect_a_good_epoch(backend, prefetcher, 3);
  EXPECT(memory.untouched());
}

TEST(cancel_while_a_batch_is_being_issued) {
  for (const char* where : {"wait", "copy_h2d", "copy_d2d", "record"}) {
    Door reached, go;
    HookedBackend backend;
    backend.set_before([&](const char* call) {
      if (std::strcmp(call, where) != 0) return;
      reached.open();
      go.pass();
    });
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    const Batch batch = plain_batch({100, 30}, 1);
    const Memory first(backend, *batch.layout);
    const Memory second(backend, *batch.layout);
    for (const Memory* memory : {&first, &second}) {
      prefetcher.give_credit(memory == &first ? 0 : 1, batch.layout, memory->outputs(),
                             memory->staging(), 0);
      EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
    }
    reached.pass();
    Actor consumer([&] { prefetcher.cancel({0}); }, [&] { go.open(); });
    consumer.wait_until_asleep();
    go.open();
    consumer.join();
    EXPECT_EQ(first.wrong(batch), -1);  // the one in the middle was finished, and waited for
    EXPECT(second.untouched());
    const Bytes before = first.snapshot();
    expect_a_good_epoch(backend, prefetcher, 3);
    EXPECT(first.snapshot() == before);
    EXPECT(second.untouched());
  }
}

TEST(cancel_with_batches_issued_and_not_delivered) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Memory first(backend, *batch.layout);
  const Memory second(backend, *batch.layout);
  const Bytes poison(100, Memory::kPoison);
  Gate gate;
  gate.close(*stream);  // so that the copies are queued and cannot begin
  for (const Memory* memory : {&first, &second}) {
    prefetcher.give_credit(memory == &first ? 0 : 1, batch.layout, memory->outputs(), nullptr,
                           stream->handle());
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  }
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.cancel({stream->handle()});  // does not wait on the host
  EXPECT(first.untouched() && second.untouched());
  // The owner's next use of the memory, in the order of its stream, comes after the late copies.
  for (const Memory* memory : {&first, &second}) {
    stream->copy_h2d_async(memory->outputs()[0], poison.data(), poison.size());
  }
  gate.open();
  stream->synchronize();
  EXPECT(first.untouched() && second.untouched());
  expect_a_good_epoch(backend, prefetcher, 3);
  EXPECT(first.untouched() && second.untouched());
}

TEST(cancel_on_the_hosts_stream_waits_for_the_device) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  Actor consumer([&] { prefetcher.cancel({0}); }, [&] { gate.open(); });
  consumer.wait_until_asleep();
  EXPECT(memory.untouched());
  gate.open();
  consumer.join();
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(cancel_with_errors_and_the_end_on_their_way) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 3, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  for (const EntryKind kind : {EntryKind::kError, EntryKind::kError, EntryKind::kEnd}) {
    EXPECT(prefetcher.ring().put(epoch, kind, kForever) == WaitStatus::kOk);
  }
  prefetcher.cancel({0});
  prefetcher.cancel({0});
  expect_a_good_epoch(backend, prefetcher, 3);
}

TEST(cancel_at_any_moment) {
  static uint64_t seed = 0;
  for (int round = 0; round < 6; ++round) {
    HostBackendOptions options;
    options.delay_seed = ++seed;
    options.max_delay = std::chrono::microseconds(80);
    HostBackend backend(options);
    std::mt19937 random(static_cast<unsigned>(seed));
    Prefetcher prefetcher(backend, 0, 1 + seed % 3, kLimit);
    std::vector<std::unique_ptr<Memory>> freed;
    for (int epochs = 0; epochs < 4; ++epochs) {
      const Ring::Epoch epoch = prefetcher.ring().open_epoch();
      std::map<uint64_t, Batch> batches;
      Batch batch = random_batch(random);
      for (uint64_t i = 0; i < 10; ++i) {
        if (random() % 3 == 0) batch = random_batch(random);
        batches[epoch.first_seq + i] = batch;
      }
      const std::map<uint64_t, Batch>& known = batches;
      Actor producer(
          [&] {
            for (const auto& [seq, each] : known) {
              if (prefetcher.push(epoch.number, each.layout, each.addresses(), kForever) !=
                  WaitStatus::kOk) {
                return;
              }
            }
          },
          [&] { prefetcher.close(); });
      Consumer consumer(backend, prefetcher, epoch.first_seq);
      for (uint64_t left = random() % 6; left > 0; --left) {
        consumer.top_up(known, 0, known.at(consumer.next_seq()).layout);
        EXPECT(consumer.next(known, 0) == Arrival::kBatch);
        EXPECT_EQ(consumer.take()->wrong(known.at(consumer.next_seq() - 1)), -1);
      }
      consumer.top_up(known, 0, known.at(consumer.next_seq()).layout);
      prefetcher.cancel({0});
      for (auto& [seq, memory] : consumer.memory()) {
        memory->poison();  // the owner's again: a late write is a race, too
        freed.push_back(std::move(memory));
      }
      producer.join();
    }
    expect_a_good_epoch(backend, prefetcher, 5);
    prefetcher.close();
    for (const auto& memory : freed) EXPECT(memory->untouched());
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
