// Which stream waits for which. Consumer streams are real ones of the twin, held by gates.

#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// Pushes `batch`, waits until it has been issued, and returns its ticket.
Ticket push_and_wait(Prefetcher& prefetcher, uint64_t epoch, const Batch& batch) {
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  return ticket;
}

TEST(the_copy_waits_for_the_credit_and_the_host_for_nothing) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({100, 7}, 1);
  const Memory memory(backend, *batch.layout);
  Bytes back(100, 0);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), stream->handle());
  const Ticket ticket = push_and_wait(prefetcher, epoch, batch);
  prefetcher.deliver(ticket, stream->handle());  // the gate is still closed
  stream->copy_d2h_async(back.data(), memory.outputs()[0], back.size());
  EXPECT(!ticket.done());
  EXPECT(memory.untouched());
  gate.open();
  stream->synchronize();
  EXPECT(ticket.done());
  EXPECT(back == batch.out[0]);
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(a_batch_crosses_the_bus_while_the_one_before_is_normalised) {
  HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  const Batch first = normalized_batch(1);
  const Batch second = normalized_batch(2);
  const Memory memory(backend, *first.layout);
  const Memory next(backend, *second.layout);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const auto copies = backend.twin().wrap_external(0, backend.copy_stream());
  const auto kernels = backend.twin().wrap_external(0, backend.kernel_stream());
  Gate gate;
  gate.close(*kernels);
  prefetcher.give_credit(0, first.layout, memory.outputs(), memory.staging(), stream->handle());
  prefetcher.give_credit(1, second.layout, next.outputs(), next.staging(), stream->handle());
  const Ticket ticket = push_and_wait(prefetcher, epoch, first);
  prefetcher.deliver(ticket, stream->handle());
  const Ticket later = push_and_wait(prefetcher, epoch, second);
  copies->synchronize();  // on one stream with the kernels, this would wait for the gate
  EXPECT(memory.staging_begins_with(first.in[0]));
  EXPECT(next.staging_begins_with(second.in[0]));
  EXPECT(!ticket.done());
  EXPECT(!later.done());
  gate.open();
  later.wait_host();
  EXPECT_EQ(memory.wrong(first), -1);
  EXPECT_EQ(next.wrong(second), -1);
}

TEST(the_kernels_wait_for_their_own_copy) {
  HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  const Batch first = normalized_batch(2);
  const Batch batch = normalized_batch(3);
  const Memory before(backend, *first.layout);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const auto copies = backend.twin().wrap_external(0, backend.copy_stream());
  const auto kernels = backend.twin().wrap_external(0, backend.kernel_stream());
  prefetcher.give_credit(0, first.layout, before.outputs(), before.staging(), stream->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch, first), stream->handle());
  stream->synchronize();  // a copy and kernels came before, in this slot and by its events
  Gate gate;
  gate.close(*copies);
  prefetcher.give_credit(1, batch.layout, memory.outputs(), memory.staging(), stream->handle());
  const Ticket ticket = push_and_wait(prefetcher, epoch, batch);
  Actor ran([&] { kernels->synchronize(); }, [&] { gate.open(); });
  ran.wait_until_asleep();
  EXPECT(memory.untouched());
  gate.open();
  ran.join();
  EXPECT(ticket.done());
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(no_stream_reads_a_batch_before_its_kernels_ran) {
  HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  const Batch batch = normalized_batch(3);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const auto copies = backend.twin().wrap_external(0, backend.copy_stream());
  Bytes back(batch.out[0].size(), 0);
  Gate gate;
  gate.close(*backend.twin().wrap_external(0, backend.kernel_stream()));
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), stream->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch, batch), stream->handle());
  stream->copy_d2h_async(back.data(), memory.outputs()[0], back.size());
  copies->synchronize();
  Actor reading([&] { stream->synchronize(); }, [&] { gate.open(); });
  reading.wait_until_asleep();
  EXPECT(back == Bytes(back.size(), 0));
  gate.open();
  reading.join();
  EXPECT(back == batch.out[0]);
}

TEST(the_ticket_of_a_batch_without_kernels_stands_for_the_batch_before) {
  // Its copy overtakes the kernels of the batch before. The newest ticket is all that the end of an
  // epoch waits for.
  HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  const Batch first = normalized_batch(3);
  const Batch second = plain_batch({64}, 1);
  EXPECT_EQ(second.layout->staging_bytes(), size_t{0});
  const Memory memory(backend, *first.layout);
  const Memory next(backend, *second.layout);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const auto copies = backend.twin().wrap_external(0, backend.copy_stream());
  Gate gate;
  gate.close(*backend.twin().wrap_external(0, backend.kernel_stream()));
  prefetcher.give_credit(0, first.layout, memory.outputs(), memory.staging(), stream->handle());
  prefetcher.give_credit(1, second.layout, next.outputs(), nullptr, stream->handle());
  const Ticket ticket = push_and_wait(prefetcher, epoch, first);
  prefetcher.deliver(ticket, stream->handle());
  const Ticket newest = push_and_wait(prefetcher, epoch, second);
  copies->synchronize();
  EXPECT_EQ(next.wrong(second), -1);
  EXPECT(!newest.done());
  gate.open();
  newest.wait_host();
  EXPECT(ticket.done());
  EXPECT_EQ(memory.wrong(first), -1);
}

TEST(the_stream_of_delivery_waits_though_it_made_no_credit) {
  HostBackend backend;
  const auto maker = backend.create_stream(0);
  const auto user = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  const auto passed = backend.create_event(0);
  Bytes back(64, 0);
  Gate gate;
  gate.close(*maker);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), maker->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch, batch), user->handle());
  user->copy_d2h_async(back.data(), memory.outputs()[0], back.size());
  const Ticket read = user->record(*passed);
  EXPECT(!read.done());
  gate.open();
  read.wait_host();
  EXPECT(back == batch.out[0]);
}

TEST(a_slot_is_not_refilled_while_its_copy_is_held) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({64}, 1);
  const Batch next = refilled(batch, 2);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), stream->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch, batch), stream->handle());
  EXPECT(prefetcher.push(epoch, next.layout, next.addresses(), kNow) == WaitStatus::kTimeout);
  gate.open();
  EXPECT(prefetcher.push(epoch, next.layout, next.addresses(), kForever) == WaitStatus::kOk);
  stream->synchronize();
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(a_consumer_may_change_its_stream_while_the_old_one_is_held) {
  // The event of credit 0 is wanted again for credit 2, on another stream, while its first ticket
  // is far from done and the copy stream waits for it.
  HostBackend backend;
  const auto slow = backend.create_stream(0);
  const auto fast = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch first = plain_batch({50}, 1);
  std::vector<Batch> batches;
  std::vector<std::unique_ptr<Memory>> memory;
  for (unsigned i = 0; i < 6; ++i) {
    batches.push_back(refilled(first, i));
    memory.push_back(std::make_unique<Memory>(backend, *first.layout));
  }
  Gate gate;
  gate.close(*slow);
  for (uint64_t seq = 0; seq < 2; ++seq) {
    const uintptr_t stream = (seq == 0 ? slow : fast)->handle();
    prefetcher.give_credit(seq, first.layout, memory[seq]->outputs(), nullptr, stream);
    EXPECT(prefetcher.push(epoch, first.layout, batches[seq].addresses(), kNow) == WaitStatus::kOk);
  }
  for (uint64_t seq = 0; seq < 2; ++seq) {
    Ticket ticket;
    EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
    prefetcher.deliver(ticket, fast->handle());
    const uintptr_t stream = (seq == 0 ? fast : slow)->handle();
    prefetcher.give_credit(seq + 2, first.layout, memory[seq + 2]->outputs(), nullptr, stream);
  }
  for (const auto& each : memory) EXPECT(each->untouched());
  gate.open();
  for (uint64_t seq = 2; seq < 6; ++seq) {
    if (seq >= 4) {
      const uintptr_t stream = (seq % 2 == 0 ? slow : fast)->handle();
      prefetcher.give_credit(seq, first.layout, memory[seq]->outputs(), nullptr, stream);
    }
    prefetcher.deliver(push_and_wait(prefetcher, epoch, batches[seq]), fast->handle());
  }
  fast->synchronize();
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(memory[i]->wrong(batches[i]), -1);
}

TEST(a_new_epoch_may_come_on_another_stream) {
  HostBackend backend;
  const auto slow = backend.create_stream(0);
  const auto fast = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  prefetcher.ring().open_epoch();
  const Batch batch = plain_batch({50}, 1);
  const Memory dropped(backend, *batch.layout);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*slow);
  prefetcher.give_credit(0, batch.layout, dropped.outputs(), nullptr, slow->handle());
  prefetcher.cancel({slow->handle()});
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  prefetcher.give_credit(epoch.first_seq, batch.layout, memory.outputs(), nullptr, fast->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch.number, batch), fast->handle());
  fast->synchronize();  // while the gate is closed: nothing waits for the slow stream any more
  EXPECT_EQ(memory.wrong(batch), -1);
  EXPECT(dropped.untouched());
}

TEST(a_replaced_credit_is_not_waited_for) {
  HostBackend backend;
  const auto slow = backend.create_stream(0);
  const auto fast = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({50}, 1);
  const Memory replaced(backend, *batch.layout);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*slow);
  prefetcher.give_credit(0, batch.layout, replaced.outputs(), nullptr, slow->handle());
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, fast->handle());
  prefetcher.deliver(push_and_wait(prefetcher, epoch, batch), fast->handle());
  fast->synchronize();
  EXPECT_EQ(memory.wrong(batch), -1);
  EXPECT(replaced.untouched());
}

TEST(an_event_is_recorded_again_on_its_own_stream_or_when_it_is_done) {
  HookedBackend backend;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(backend.twin().create_stream(0));
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  prefetcher.ring().open_epoch();
  const Batch batch = plain_batch({50}, 1);
  const Memory memory(backend, *batch.layout);
  const int made = backend.events();
  // Every time in place of the credit before, which is still unused.
  const auto events_after_a_credit_on = [&](size_t stream) {
    prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, streams[stream]->handle());
    return backend.events() - made;
  };
  EXPECT_EQ(events_after_a_credit_on(0), 0);
  streams[0]->synchronize();
  EXPECT_EQ(events_after_a_credit_on(1), 0);  // the one on stream 0 is done
  streams[1]->synchronize();
  {
    Gate gates[3];
    for (size_t i = 0; i < 3; ++i) gates[i].close(*streams[i]);
    EXPECT_EQ(events_after_a_credit_on(0), 0);
    EXPECT_EQ(events_after_a_credit_on(0), 0);
    EXPECT_EQ(events_after_a_credit_on(1), 1);
    EXPECT_EQ(events_after_a_credit_on(2), 2);  // both others are outstanding
    for (const size_t stream : {0, 1, 2, 1, 0}) EXPECT_EQ(events_after_a_credit_on(stream), 2);
  }
  for (size_t i = 0; i < 3; ++i) streams[i]->synchronize();
  Gate gate;
  gate.close(*streams[0]);
  EXPECT_EQ(events_after_a_credit_on(0), 2);
  EXPECT_EQ(events_after_a_credit_on(3), 2);  // one that is done, though of another stream
}

TEST(an_event_is_not_recorded_again_on_a_handle_of_another_thread_before_it_is_done) {
  // CUDA's handle 2 is another stream there.
  HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  prefetcher.ring().open_epoch();
  const Batch batch = plain_batch({50}, 1);
  const Memory memory(backend, *batch.layout);
  const int made = backend.events();
  Gate gate;
  gate.close(*stream);
  const auto offer = [&] {
    prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  };
  offer();
  EXPECT_EQ(backend.events(), made);
  Actor other(offer);
  other.join();
  EXPECT_EQ(backend.events(), made + 1);
}

TEST(no_batch_takes_a_credit_while_it_is_being_replaced) {
  // The batch that the first credit would suit comes while the event of that credit is about to be
  // recorded for the second one. The test never sleeps: the ring either lacks a credit or issues
  // the batch, and says which.
  HookedBackend backend;
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({50}, 1);
  const Memory replaced(backend, *batch.layout);
  const Memory memory(backend, *batch.layout);
  prefetcher.give_credit(0, batch.layout, replaced.outputs(), nullptr, 0);
  int records = 0;
  backend.set_before_wrapped([&](const char* call) {
    if (std::strcmp(call, "record") != 0) return;
    ++records;
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
    Ticket ticket;
    EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kNeedsCredit);
  });
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  EXPECT_EQ(records, 1);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.deliver(ticket, 0);
  EXPECT_EQ(memory.wrong(batch), -1);
  EXPECT(replaced.untouched());
}

TEST(a_refused_credit_changes_nothing) {
  // Batch 1 has the place of batch 0, whose credit is in use.
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({50}, 1);
  const Memory memory(backend, *batch.layout);
  const Memory early(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  const Ticket ticket = push_and_wait(prefetcher, epoch, batch);
  EXPECT_THROW(prefetcher.give_credit(1, batch.layout, early.outputs(), nullptr, 0),
               InvalidArgument, "batch 1");
  EXPECT(memory.untouched());
  gate.open();
  prefetcher.deliver(ticket, stream->handle());
  stream->synchronize();
  EXPECT_EQ(memory.wrong(batch), -1);
  EXPECT(early.untouched());
}

TEST(memory_is_used_again_as_soon_as_the_consumer_gave_it_back) {
  // One block of memory per credit for the whole epoch, as from torch's caching allocator: reading
  // a batch is queued, and the memory is offered for another one at once. Any missing wait shows as
  // wrong bytes, and as a race to ThreadSanitizer.
  static uint64_t seed = 0;
  for (int round = 0; round < 4; ++round) {
    HostBackendOptions options;
    options.delay_seed = ++seed;
    options.max_delay = std::chrono::microseconds(80);
    HostBackend backend(options);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(backend.create_stream(0));
    const size_t depth = 1 + seed % 3;
    Prefetcher prefetcher(backend, 0, depth, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    const Batch first = plain_batch({300, 20}, 1);
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<size_t> made_on(depth);
    constexpr uint64_t kCount = 15;
    std::vector<Batch> batches;
    std::vector<Bytes> back(kCount, Bytes(300, 0));
    for (unsigned i = 0; i < kCount; ++i) batches.push_back(refilled(first, i));
    Actor producer(
        [&] {
          for (const Batch& batch : batches) {
            EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) ==
                   WaitStatus::kOk);
          }
        },
        [&] { prefetcher.close(); });
    const auto offer = [&](uint64_t seq, size_t stream) {
      const Memory& mine = *memory[seq % depth];
      prefetcher.give_credit(seq, first.layout, mine.outputs(), mine.staging(),
                             streams[stream]->handle());
    };
    for (uint64_t seq = 0; seq < depth; ++seq) {
      memory.push_back(std::make_unique<Memory>(backend, *first.layout));
      offer(seq, random() % streams.size());
    }
    for (uint64_t seq = 0; seq < kCount; ++seq) {
      Ticket ticket;
      EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
      const size_t stream = random() % streams.size();
      prefetcher.deliver(ticket, streams[stream]->handle());
      streams[stream]->copy_d2h_async(back[seq].data(), memory[seq % depth]->outputs()[0], 300);
      if (seq + depth < kCount) offer(seq + depth, stream);
    }
    producer.join();
    for (const auto& stream : streams) stream->synchronize();
    for (uint64_t seq = 0; seq < kCount; ++seq) EXPECT(back[seq] == batches[seq].out[0]);
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
