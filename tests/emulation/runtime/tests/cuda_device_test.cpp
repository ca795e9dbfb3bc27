// Two devices, the caller's own device, the default streams, and a fork.

#include <string>
#include <thread>

#include "backend/registry.h"
#include "base/error.h"
#include "emulator_test.h"
#include "epoch.h"

namespace fastloader::testing {
namespace {

Backend& cuda() { return open_or_skip("cuda"); }

TEST(the_second_device_alone_makes_no_context_on_the_first) {
  const char* name = "the_second_device_alone_makes_no_context_on_the_first";
  if (!is_child_of(name)) {  // in a process of its own, where no context exists yet
    const SelfEnd self = is_child() ? SelfEnd{{0, 0}, {}} : run_alone(name);
    if (self.end.exit_code != 0) throw Failure{self.said};
    return;
  }
  describe_cuda();
  EXPECT(!cuda_emulated::context_exists(0));
  EXPECT(!cuda_emulated::context_exists(1));
  std::thread([] {
    cudaSetDevice(1);
    const ConsumerStream stream(1);
    run_epoch(cuda(), 1, {plain_batch({1000, 300}, 1), image_batch(2)}, 9, stream);
  }).join();
  EXPECT(!cuda_emulated::context_exists(0));
  for (const std::string& note : cuda_emulated::notes()) {
    if (note.find("made a context") != std::string::npos) throw Failure{note};
  }
}

TEST(two_devices_at_once) {
  const Clean clean;
  std::vector<std::thread> threads;
  std::array<std::string, 2> failures;
  for (const int device : {0, 1}) {
    threads.emplace_back([device, &failures] {
      try {
        const ConsumerStream stream(device);
        run_epoch(cuda(), device, {plain_batch({999, 1}, 1), image_batch(3)}, 12, stream);
      } catch (const Failure& failure) {
        failures[static_cast<size_t>(device)] = failure.what;
      } catch (const std::exception& failure) {
        failures[static_cast<size_t>(device)] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, std::string());
  EXPECT(cuda_emulated::misuses().empty());
}

TEST(the_callers_device_stays) {
  const Clean clean;
  {
    const auto stream = cuda().create_stream(1);
    const auto event = cuda().create_event(1);
    const auto host = cuda().allocate_host(1, 4096);
    const auto block = cuda().allocate_device(1, 4096);
    stream->copy_h2d_async(block->data(), host->data(), 4096);
    const Ticket ticket = stream->record(*event);
    ticket.wait_host();
    EXPECT(ticket.done());
    stream->check();
  }
  int device = -1;
  EXPECT(cudaGetDevice(&device) == cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT(cuda_emulated::misuses().empty());
}

TEST(a_stream_waits_for_a_ticket_of_another_device) {
  const Clean clean;
  const auto first = cuda().create_stream(0);
  const auto second = cuda().create_stream(1);
  const auto event = cuda().create_event(0);
  const auto behind = cuda().create_event(1);
  RawGate gate;
  gate.close(reinterpret_cast<cudaStream_t>(first->handle()));
  second->wait(first->record(*event));
  const Ticket passed = second->record(*behind);
  EXPECT(!passed.done());
  gate.open();
  passed.wait_host();
  EXPECT_THROW(second->record(*event), InvalidArgument, "device");
}

TEST(the_handles_of_the_default_streams_serve) {
  const Clean clean;
  for (const uintptr_t handle : {uintptr_t{0}, uintptr_t{1}, uintptr_t{2}}) {
    const auto stream = cuda().wrap_external(1, handle);
    const auto event = cuda().create_event(1);
    const auto block = cuda().allocate_device(1, 64);
    const auto host = cuda().allocate_host(1, 64);
    stream->copy_h2d_async(block->data(), host->data(), 64);
    stream->record(*event).wait_host();
    stream->synchronize();
  }
  EXPECT(cuda_emulated::misuses().empty());
}

TEST(the_default_stream_of_the_thread_that_takes_a_batch_waits_for_it) {
  constexpr uintptr_t kPerThread = 2;
  const Clean clean;
  const Batch batch = plain_batch({64, 32}, 1);
  const OfferedMemory first(0, *batch.layout);
  const OfferedMemory second(0, *batch.layout);
  Prefetcher prefetcher(cuda(), 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, first.outputs(), first.staging(), kPerThread);
  prefetcher.give_credit(1, batch.layout, second.outputs(), second.staging(), kPerThread);
  const auto take = [&] {
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), within_a_minute()) ==
           WaitStatus::kOk);
    Ticket ticket;
    EXPECT(prefetcher.ring().wait_arrival(within_a_minute(), &ticket) == Arrival::kBatch);
    prefetcher.deliver(ticket, kPerThread);
  };
  take();
  Actor other([&] {
    pthread_setname_np(pthread_self(), "other taker");
    take();
  });
  other.join();
  cuda_emulated::Counts counts = cuda_emulated::counts();
  EXPECT_EQ(counts["other taker"]["cudaStreamWaitEvent"], uint64_t{1});
  EXPECT_EQ(counts["other taker"]["cudaEventSynchronize"], uint64_t{0});
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  prefetcher.cancel({kPerThread});
  prefetcher.close();
  EXPECT(cuda_emulated::misuses().empty());
}

TEST(another_thread_ends_an_epoch_whose_memory_is_of_a_threads_default_stream) {
  // The handle means another stream on the thread that ends the epoch, and no call there can make
  // the stream wait to which the memory goes back.
  constexpr uintptr_t kPerThread = 2;
  const Clean clean;
  const Batch batch = plain_batch({64, 32}, 1);
  const OfferedMemory memory(0, *batch.layout);
  Prefetcher prefetcher(cuda(), 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  RawGate gate;
  gate.close(cudaStreamPerThread);
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), kPerThread);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), within_a_minute()) ==
         WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(within_a_minute(), &ticket) == Arrival::kBatch);
  Actor ending([&] { prefetcher.cancel({kPerThread}); }, [&] { gate.open(); });
  ending.wait_until_asleep();
  EXPECT(!ticket.done());
  gate.open();
  ending.join();
  for (size_t leaf = 0; leaf < batch.out.size(); ++leaf) {
    EXPECT(memory.read(leaf, batch.out[leaf].size()) == batch.out[leaf]);
  }
  prefetcher.close();
  EXPECT(cuda_emulated::misuses().empty());
}

TEST(a_forked_child_calls_nothing) {
  const Clean clean;
  Backend& backend = cuda();
  auto prefetcher = std::make_unique<Prefetcher>(backend, 0, kDepth, kLimit);
  const ChildEnd end = in_forked_child([&] {
    prefetcher.reset();
    try {
      open_backend("cuda");
      _exit(3);
    } catch (const BackendUnavailable& error) {
      const std::string why = error.what();
      if (why.find("forked after CUDA was first used") == std::string::npos) _exit(4);
    }
    describe_cuda();
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT(cuda_emulated::misuses().empty());
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
