// What the ring and the device have cost, and what the consumer found.

#include <chrono>
#include <map>
#include <thread>

#include "base/clock.h"
#include "hooked_backend.h"
#include "prefetcher_test.h"

namespace {

using namespace fastloader;
namespace t = fastloader::testing;

TEST(a_slow_bus_is_time_of_the_device) {
  HostBackendOptions options;
  options.copy_delay = std::chrono::milliseconds(2);
  HostBackend backend(options);
  Prefetcher prefetcher(backend, 0, 2, t::kLimit);
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  t::Consumer consumer(backend, prefetcher, epoch.first_seq);
  std::map<uint64_t, t::Batch> batches;
  for (uint64_t i = 0; i < 6; ++i) {
    batches[epoch.first_seq + i] = t::plain_batch({100, 30}, 1);
    const t::Batch& batch = batches[epoch.first_seq + i];
    EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), t::kForever) ==
           t::WaitStatus::kOk);
    EXPECT(consumer.next(batches, 0) == t::Arrival::kBatch);
    EXPECT_EQ(consumer.take()->wrong(batch), -1);
  }
  prefetcher.cancel({0});
  prefetcher.close();
  const Ring::Stats stats = prefetcher.ring().stats();
  // Not 6 times 2 ms: a reaper that wakes late sees a copy begin late.
  EXPECT(stats.device_s > 0);
  EXPECT(stats.device_wait_s >= 0);
  EXPECT(stats.pack_s > 0);
  // It came after each push, and found that one; coming again with a credit does not count.
  EXPECT_EQ(stats.asked, uint64_t{6});
  EXPECT_EQ(stats.found, uint64_t{6});
}

TEST(waiting_for_the_consumers_stream_is_no_work_of_the_device) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 1, t::kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const t::Batch batch = t::plain_batch({100}, 1);
  const t::Memory memory(backend, *batch.layout);
  t::Gate gate;
  gate.close(*stream);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), nullptr, stream->handle());
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), t::kNow) == t::WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(t::kForever, &ticket) == t::Arrival::kBatch);
  // It has been issued by now, so that from now on the copy stream waits.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gate.open();
  prefetcher.deliver(ticket, 0);
  prefetcher.close();
  EXPECT(prefetcher.ring().stats().device_wait_s >= 0.05);
  EXPECT_EQ(memory.wrong(batch), -1);
}

TEST(a_copy_behind_the_kernels_of_the_batch_before_is_not_counted_twice) {
  t::HookedBackend backend;
  const auto stream = backend.twin().create_stream(0);
  const t::Batch batch = t::normalized_batch(1);
  const t::Memory first(backend, *batch.layout);
  const t::Memory second(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 2, t::kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const auto copies = backend.twin().wrap_external(0, backend.copy_stream());
  t::Gate gate;  // the kernels of the first batch take their time
  gate.close(*backend.twin().wrap_external(0, backend.kernel_stream()));
  for (const t::Memory* memory : {&first, &second}) {
    prefetcher.give_credit(memory == &first ? 0 : 1, batch.layout, memory->outputs(),
                           memory->staging(), stream->handle());
  }
  const int64_t begun = now_ns();
  for (int i = 0; i < 2; ++i) {
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), t::kNow) == t::WaitStatus::kOk);
    Ticket ticket;
    EXPECT(prefetcher.ring().wait_arrival(t::kForever, &ticket) == t::Arrival::kBatch);
    prefetcher.deliver(ticket, stream->handle());
  }
  copies->synchronize();  // so that both copies are done, and the kernels of both wait
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gate.open();
  stream->synchronize();
  prefetcher.close();
  const double took = static_cast<double>(now_ns() - begun) * 1e-9;
  const Ring::Stats stats = prefetcher.ring().stats();
  // The two together, since a reaper that wakes late sees a copy begin late.
  EXPECT(stats.device_s + stats.device_wait_s >= 0.05);
  EXPECT(stats.device_s + stats.device_wait_s <= took);
  EXPECT_EQ(first.wrong(batch), -1);
  EXPECT_EQ(second.wrong(batch), -1);
}

}  // namespace

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
