// Failures of the device, and the end of a prefetcher: close, destruction, fork. No thread hangs,
// and no bad batch passes for a good one.

#include <pthread.h>

#include "child_process.h"
#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// For what would otherwise never be told.
Ring::Clock::time_point within_a_minute() { return Ring::Clock::now() + std::chrono::minutes(1); }

/// Six batches from another thread; the number of those that came, all of them right, before the
/// failure, which is in `*failure`.
uint64_t run_until_failure(Backend& backend, size_t depth, std::string* failure) {
  Prefetcher prefetcher(backend, 0, depth, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  std::map<uint64_t, Batch> made;
  for (unsigned i = 0; i < 6; ++i) {
    made[i] = i % 2 == 0 ? plain_batch({64 + i}, i) : plain_batch({32, 0, 16 + i}, i);
  }
  const NormalizeSpec spec =
      make_spec(1, 3, 5, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat32);
  const Expected expected(spec);
  made[2].layout = std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{BatchLayout::Leaf{spec.in_bytes(), spec, 0}});
  made[2].in = {expected.in};
  made[2].out = {expected.out};
  const std::map<uint64_t, Batch>& batches = made;
  Actor producer(
      [&] {
        for (const auto& [seq, batch] : batches) {
          if (prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) != WaitStatus::kOk)
            return;
        }
      },
      [&] { prefetcher.close(); });
  Consumer consumer(backend, prefetcher, 0);
  uint64_t came = 0;
  try {
    for (; came < batches.size(); ++came) {
      EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
      EXPECT_EQ(consumer.take()->wrong(batches.at(came)), -1);
    }
  } catch (const BackendError& first) {
    *failure = first.what();
    // Sticky from now on.
    Ticket ticket;
    EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, *failure);
    producer.join();
    EXPECT(prefetcher.push(epoch, batches.at(0).layout, batches.at(0).addresses(), kForever) ==
           WaitStatus::kOver);
    prefetcher.cancel({0});
  }
  prefetcher.close();
  return came;
}

TEST(any_task_of_the_device_may_fail) {
  for (const size_t depth : {size_t{1}, size_t{3}}) {
    uint64_t came = 0;
    for (uint64_t n = 1; came < 6; ++n) {
      HostBackendOptions options;
      options.fail_on_call = n;
      options.delay_seed = n;
      options.max_delay = std::chrono::microseconds(30);
      HostBackend backend(options);
      std::string failure;
      came = run_until_failure(backend, depth, &failure);
      EXPECT_EQ(failure.empty(), came == 6);
      if (came < 6) EXPECT(failure.find("call " + std::to_string(n)) != std::string::npos);
      EXPECT(n < 20);
    }
  }
}

TEST(any_call_of_the_prefetch_thread_may_throw) {
  for (const size_t depth : {size_t{1}, size_t{3}}) {
    uint64_t came = 0;
    for (int n = 1; came < 6; ++n) {
      std::atomic<int> calls{0};
      HookedBackend backend;
      backend.set_before([&](const char* call) {
        if (++calls == n) throw BackendError(std::string(call) + " was refused");
      });
      std::string failure;
      came = run_until_failure(backend, depth, &failure);
      EXPECT_EQ(failure.empty(), came == 6);
      if (came < 6) EXPECT(failure.find("was refused") != std::string::npos);
      EXPECT(n < 60);
    }
  }
}

TEST(a_thread_that_cannot_attach_fails_the_ring) {
  class Unattachable final : public Backend {
   public:
    explicit Unattachable(const char* thread) : refused(thread) {}
    const char* name() const override { return twin.name(); }
    int device_count() const override { return 1; }
    void attach_thread(int) override {
      char mine[16] = {};
      pthread_getname_np(pthread_self(), mine, sizeof mine);
      if (std::strcmp(mine, refused) == 0) throw BackendError("no such context");
    }
    std::unique_ptr<Stream> create_stream(int d) override { return twin.create_stream(d); }
    std::unique_ptr<Stream> wrap_external(int d, uintptr_t handle) override {
      return twin.wrap_external(d, handle);
    }
    std::unique_ptr<Event> create_event(int d) override { return twin.create_event(d); }
    std::unique_ptr<HostBlock> allocate_host(int d, size_t bytes) override {
      return twin.allocate_host(d, bytes);
    }
    std::unique_ptr<DeviceBlock> allocate_device(int d, size_t bytes) override {
      return twin.allocate_device(d, bytes);
    }
    const char* const refused;
    HostBackend twin;
  };
  for (const char* thread : {"fl-prefetch", "fl-reaper"}) {
    Unattachable backend(thread);
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    Ticket ticket;
    EXPECT_THROW(prefetcher.ring().wait_arrival(within_a_minute(), &ticket), BackendError,
                 "context");
  }
}

TEST(work_queued_before_a_failure_is_waited_for) {
  // The output cannot be normalised into, which shows after the copy into the staging buffer has
  // been queued: its owner gets the buffer back only behind that copy.
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const NormalizeSpec spec =
      make_spec(1, 4, 4, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16);
  const Expected expected(spec);
  const auto layout = std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{BatchLayout::Leaf{spec.in_bytes(), spec, 0}});
  const Memory memory(backend, *layout);
  const Bytes poison(layout->staging_bytes(), Memory::kPoison);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, layout, {static_cast<char*>(memory.outputs()[0]) + 1}, memory.staging(),
                         stream->handle());
  EXPECT(prefetcher.push(epoch, layout, {expected.in.data()}, kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "multiples of 16");
  prefetcher.cancel({stream->handle()});
  stream->copy_h2d_async(memory.staging(), poison.data(), poison.size());
  gate.open();
  stream->synchronize();
  prefetcher.close();
  EXPECT(memory.untouched());
}

TEST(a_failure_behind_a_delivery_wakes_a_consumer_that_waits) {
  // When the batch is delivered its copy has not begun; when the copy fails, nothing else is on its
  // way that could tell.
  HostBackendOptions options;
  options.fail_on_call = 1;
  HostBackend backend(options);
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.deliver(ticket, stream->handle());
  gate.open();
  EXPECT_THROW(prefetcher.ring().wait_arrival(within_a_minute(), &ticket), BackendError, "call 1");
}

TEST(close_waits_for_work_that_no_ticket_tells_of) {
  // No thread can wait for a batch whose record was refused: only the stream knows of its copy.
  HookedBackend backend;
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  std::unique_ptr<Prefetcher> prefetcher;
  Gate gate;            // of the copy stream, so it has to go first
  bool copied = false;  // the hook's own
  backend.set_before([&](const char* call) {
    if (std::strcmp(call, "copy_h2d") == 0) {
      gate.close(*backend.twin().wrap_external(0, backend.copy_stream()));
      copied = true;
    } else if (std::strcmp(call, "record") == 0 && copied) {
      throw BackendError("record was refused");
    }
  });
  prefetcher = std::make_unique<Prefetcher>(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher->ring().open_epoch().number;
  prefetcher->give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  EXPECT(prefetcher->push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT_THROW(prefetcher->ring().wait_arrival(kForever, &ticket), BackendError, "was refused");
  Actor closer([&] { prefetcher->close(); }, [&] { gate.open(); });
  closer.wait_until_asleep();
  EXPECT(memory.untouched());
  gate.open();
  closer.join();
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(a_third_thread_may_close) {
  for (const bool twice : {false, true}) {
    HostBackend backend;
    auto prefetcher = std::make_unique<Prefetcher>(backend, 0, 2, kLimit);
    const uint64_t epoch = prefetcher->ring().open_epoch().number;
    const Batch batch = plain_batch({8}, 1);
    const auto release = [&] { prefetcher->close(); };
    Actor consumer(
        [&] {
          Ticket ticket;
          EXPECT_THROW(prefetcher->ring().wait_arrival(kForever, &ticket), Error, "closed");
        },
        release);
    consumer.wait_until_asleep();
    Actor first([&] { prefetcher->close(); });
    if (twice) {
      Actor second([&] { prefetcher->close(); });
      second.join();
    }
    consumer.join();
    first.join();
    EXPECT(prefetcher->push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOver);
    prefetcher.reset();
  }
}

TEST(close_wakes_a_producer_in_a_full_ring) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({8}, 1);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Actor producer(
      [&] {
        EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) ==
               WaitStatus::kOver);
      },
      [&] { prefetcher.close(); });
  producer.wait_until_asleep();
  prefetcher.close();
  producer.join();
}

TEST(close_waits_for_a_batch_in_the_middle) {
  Door reached, go;
  HookedBackend backend;
  backend.set_before([&](const char* call) {
    if (std::strcmp(call, "copy_h2d") != 0) return;
    reached.open();
    go.pass();
  });
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  reached.pass();
  Actor closer([&] { prefetcher.close(); }, [&] { go.open(); });
  closer.wait_until_asleep();
  EXPECT(memory.untouched());
  go.open();
  closer.join();
  EXPECT_EQ(memory.wrong(batch), -1);  // drained, not left behind
}

TEST(destruction_in_every_state) {
  for (int state = 0; state <= 4; ++state) {
    HostBackendOptions options;
    options.delay_seed = static_cast<uint64_t>(state) + 1;
    HostBackend backend(options);
    const Batch batch = plain_batch({64, 5}, 1);
    const Memory memory(backend, *batch.layout);
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    if (state == 0) continue;
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    if (state == 1) continue;
    prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), 0);
    if (state == 2) continue;
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
    if (state == 3) continue;
    Ticket ticket;
    EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  }
}

/// In a child forked at this moment, closing and destroying neither hang nor do anything.
void expect_inert_in_child(Prefetcher* prefetcher) {
  const ChildEnd end = in_forked_child([&] {
    prefetcher->close();
    delete prefetcher;
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
}

TEST(a_forked_child_can_destroy_what_it_inherited) {
  Door reached, go;
  HookedBackend backend;
  backend.set_before([&](const char* call) {
    if (std::strcmp(call, "copy_h2d") != 0) return;
    reached.open();
    go.pass();
  });
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  auto prefetcher = std::make_unique<Prefetcher>(backend, 0, 1, kLimit);
  expect_inert_in_child(prefetcher.get());  // both threads wait, in condition variables
  const uint64_t epoch = prefetcher->ring().open_epoch().number;
  EXPECT(prefetcher->push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  expect_inert_in_child(prefetcher.get());
  Actor producer(
      [&] {
        EXPECT(prefetcher->push(epoch, batch.layout, batch.addresses(), kForever) ==
               WaitStatus::kOk);
      },
      [&] { prefetcher->close(); });
  producer.wait_until_asleep();
  prefetcher->give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  reached.pass();
  expect_inert_in_child(prefetcher.get());  // in the middle of a batch
  go.open();
  // The parent has noticed nothing.
  Ticket ticket;
  EXPECT(prefetcher->ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher->deliver(ticket, 0);
  EXPECT_EQ(memory.wrong(batch), -1);
  producer.join();
  prefetcher->close();
  expect_inert_in_child(prefetcher.get());
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
