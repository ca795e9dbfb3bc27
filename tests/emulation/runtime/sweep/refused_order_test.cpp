// At the end of an epoch the consumer's streams wait for the work that is under way, and then the
// consumer has its memory back. Where the device refuses that wait, `cancel` returns only when the
// work has ended.

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "consumer.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

/// Faults that end with the test.
struct Faults {
  explicit Faults(const std::vector<cuda_emulated::Fault>& faults) {
    for (const cuda_emulated::Fault& each : faults) cuda_emulated::inject(each);
  }
  ~Faults() { cuda_emulated::clear_faults(); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

/// A batch whose copy the gate holds back is cancelled while `faults` strike.
void cancel_under(const std::vector<cuda_emulated::Fault>& faults) {
  Backend& backend = open_or_skip("cuda");
  const Batch batch = plain_batch({1000, 301}, 3);
  const OfferedMemory memory(0, *batch.layout);
  const auto consumer = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever) ==
         WaitStatus::kOk);
  Gate gate;
  // The memory is in use on the consumer's stream until the gate opens, and the copy waits for
  // that.
  gate.close(*consumer);
  prefetcher.give_credit(epoch.first_seq, batch.layout, memory.outputs(), memory.staging(),
                         consumer->handle());
  Ticket ticket;
  // The batch has been issued, and there is no other one: the calls that follow are cancel's own,
  // but for the reaper's cudaEventSynchronize.
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  gate.wait_until_reached();
  EXPECT(memory.read(0, batch.out[0].size()) != batch.out[0]);
  const Faults striking(faults);
  Actor cancelling([&] { prefetcher.cancel({consumer->handle()}); }, [&gate] { gate.open(); });
  // It may sleep on a lock before: only behind the refusal does it wait for the batch.
  while (cuda_emulated::faults_struck() == 0) std::this_thread::yield();
  cancelling.wait_until_asleep();
  EXPECT(memory.read(0, batch.out[0].size()) != batch.out[0]);
  gate.open();
  cancelling.join();
  for (size_t leaf = 0; leaf < batch.out.size(); ++leaf) {
    EXPECT(memory.read(leaf, batch.out[leaf].size()) == batch.out[leaf]);
  }
}

cuda_emulated::Fault refused(const char* function) {
  cuda_emulated::Fault fault;
  fault.function = function;
  fault.error = cudaErrorUnknown;
  fault.from_then_on = true;
  return fault;
}

TEST(cancel_waits_where_the_stream_cannot) { cancel_under({refused("cudaStreamWaitEvent")}); }

TEST(cancel_waits_where_neither_the_stream_nor_the_host_can_wait_for_the_ticket) {
  cancel_under({refused("cudaStreamWaitEvent"), refused("cudaEventSynchronize")});
}

TEST(cancel_waits_where_the_device_cannot_be_selected) { cancel_under({refused("cudaSetDevice")}); }

TEST(a_slot_is_not_free_while_its_copy_is_held_though_a_wait_of_the_reapers_was_refused) {
  Backend& backend = open_or_skip("cuda");
  const Batch batch = plain_batch({1000, 301}, 3);
  const OfferedMemory memory(0, *batch.layout);
  const auto consumer = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  Gate gate;
  gate.close(*consumer);
  prefetcher.give_credit(epoch.first_seq, batch.layout, memory.outputs(), memory.staging(),
                         consumer->handle());
  cuda_emulated::Fault once = refused("cudaEventSynchronize");  // for the start of the copy
  once.from_then_on = false;
  const Faults striking({once});
  EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever) ==
         WaitStatus::kOk);
  while (!prefetcher.ring().failed()) std::this_thread::yield();
  Actor waiting([&] { prefetcher.ring().wait_reaped(); }, [&gate] { gate.open(); });
  waiting.wait_until_asleep();
  gate.open();
  waiting.join();
  for (size_t leaf = 0; leaf < batch.out.size(); ++leaf) {
    EXPECT(memory.read(leaf, batch.out[leaf].size()) == batch.out[leaf]);
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
