// A device that refuses a call tells so at once, and queues nothing. What was refused must order
// nothing by belief: no kernel runs on memory that no copy wrote, and no memory changes hands
// early.

#include "base/log.h"
#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// Refuses the calls of that name, once `on` is set. Threads that make the calls see `on` by the
/// ring's mutex: a test sets it before it pushes or cancels.
struct Refusal {
  HookedBackend::Hook hook(const char* name) {
    return [this, name](const char* call) {
      if (on && std::strcmp(call, name) == 0) throw Refused{};
    };
  }
  std::atomic<bool> on{true};
};

Batch augmented_batch() {
  std::mt19937 random(5);
  const AugmentCase made =
      make_augment_case(make_spec(2, 5, 7, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16),
                        kFills[1], kBlends[1], 2, random);
  BatchLayout::Leaf image;
  image.bytes = made.in.size();
  image.augment = made.spec;
  Batch batch;
  batch.in = {made.in, made.records()};
  batch.out = {made.out, {}};
  batch.layout = std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{image, BatchLayout::Leaf{batch.in[1].size(), {}, 0}});
  return batch;
}

TEST(no_kernel_is_queued_behind_a_copy_that_was_refused) {
  std::atomic<int> kernels{0};
  HookedBackend backend;
  backend.set_before([&](const char* call) {
    if (std::strcmp(call, "copy_h2d") == 0) throw Refused{};
    if (std::strcmp(call, "augment") == 0) ++kernels;
  });
  const Batch batch = augmented_batch();
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), 0);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "copy_h2d");
  prefetcher.close();
  EXPECT_EQ(kernels.load(), 0);
  EXPECT(memory.untouched());
}

TEST(no_kernel_is_queued_where_the_order_behind_its_copy_was_refused) {
  // The second record of a batch is the one behind its copy, the second wait the kernel stream's.
  for (const char* name : {"record", "wait"}) {
    std::atomic<int> kernels{0};
    int calls = 0;  // the prefetch thread's own
    HookedBackend backend;
    backend.set_before([&](const char* call) {
      if (std::strcmp(call, "normalize") == 0) ++kernels;
      if (std::strcmp(call, name) == 0 && ++calls == 2) throw Refused{};
    });
    const auto stream = backend.twin().create_stream(0);
    const Batch batch = normalized_batch(1);
    const Memory memory(backend, *batch.layout);
    Gate gate;
    gate.close(*stream);
    Prefetcher prefetcher(backend, 0, 1, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), stream->handle());
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
    Ticket ticket;
    EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "was refused");
    // The ticket behind the kernel stream's work tells nothing of the copy.
    Actor canceller([&] { prefetcher.cancel({stream->handle()}); }, [&] { gate.open(); });
    canceller.wait_until_asleep();
    EXPECT(memory.untouched());
    gate.open();
    canceller.join();
    EXPECT(memory.staging_begins_with(batch.in[0]));
    EXPECT_EQ(kernels.load(), 0);
  }
}

TEST(nothing_is_written_when_the_wait_for_its_memory_was_refused) {
  HookedBackend backend;
  Refusal refusal;
  backend.set_before(refusal.hook("wait"));
  const auto stream = backend.twin().create_stream(0);
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  Gate gate;  // the consumer still uses the memory
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "wait was refused");
  prefetcher.close();
  EXPECT(memory.untouched());
  gate.open();
}

TEST(a_batch_is_not_delivered_when_the_consumers_wait_was_refused) {
  HookedBackend backend;
  Refusal refusal;
  backend.set_before_wrapped(refusal.hook("wait"));
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  EXPECT(!prefetcher.ring().failed());
  EXPECT_THROW(prefetcher.deliver(ticket, 0), BackendError, "wait was refused");
  EXPECT(prefetcher.ring().failed());
  EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "wait was refused");
}

TEST(memory_is_not_taken_when_the_consumers_record_was_refused) {
  HookedBackend backend;
  Refusal refusal;
  backend.set_before_wrapped(refusal.hook("record"));
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  EXPECT_THROW(prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, 0), BackendError,
               "record was refused");
  EXPECT(prefetcher.ring().failed());
  prefetcher.close();
  EXPECT(memory.untouched());
}

/// A prefetcher with one batch whose copy a gate holds, and whose epoch another thread cancels.
void cancelling_waits_for_the_copy(HookedBackend& backend, const std::function<void()>& refuse) {
  const auto stream = backend.twin().create_stream(0);
  const Batch batch = plain_batch({64}, 1);
  const Memory memory(backend, *batch.layout);
  Gate gate;
  gate.close(*stream);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  refuse();
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  try {
    EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  } catch (const BackendError&) {
    // The record of the batch was refused: the ring has failed, and the copy is queued all the
    // same.
  }
  Actor canceller([&] { prefetcher.cancel({stream->handle()}); }, [&] { gate.open(); });
  canceller.wait_until_asleep();
  EXPECT(memory.untouched());
  gate.open();
  canceller.join();
  EXPECT_EQ(memory.wrong(batch), -1);
  EXPECT(prefetcher.ring().failed());
}

TEST(cancel_waits_where_the_consumers_wait_was_refused) {
  HookedBackend backend;
  Refusal refusal;
  refusal.on = false;
  backend.set_before_wrapped(refusal.hook("wait"));
  cancelling_waits_for_the_copy(backend, [&] { refusal.on = true; });
  EXPECT(log_pending());
  const LogDrain log = drain_log();
  EXPECT(log.messages.at(0).find("wait was refused") != std::string::npos);
}

TEST(cancel_waits_for_the_reaper_where_its_own_thread_can_wait_for_nothing) {
  // As on a thread whose current context is broken: every call there fails. The prefetcher's own
  // threads have another context, which is well.
  HookedBackend backend;
  Refusal waits, synchronizes;
  waits.on = synchronizes.on = false;
  backend.set_before_wrapped(waits.hook("wait"));
  backend.set_before(synchronizes.hook("synchronize"));
  cancelling_waits_for_the_copy(backend, [&] { waits.on = synchronizes.on = true; });
  EXPECT(drain_log().messages.at(0).find("wait was refused") != std::string::npos);
}

TEST(cancel_waits_for_a_batch_that_no_ticket_tells_of) {
  HookedBackend backend;
  Refusal refusal;
  refusal.on = false;
  backend.set_before(refusal.hook("record"));
  cancelling_waits_for_the_copy(backend, [&] { refusal.on = true; });
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
