// The orders that CUDA promises between streams, events and the host, and no others.

#include <thread>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

TEST(an_event_that_was_never_recorded_is_done) {
  const Clean clean;
  const RawEvent event;
  const RawStream stream;
  EXPECT(cudaEventQuery(event) == cudaSuccess);
  EXPECT(cudaEventSynchronize(event) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
}

TEST(a_wait_captures_the_record_of_its_time) {
  const Clean clean;
  const RawStream first;
  const RawStream second;
  const RawEvent event;
  EXPECT(cudaEventRecord(event, first) == cudaSuccess);
  EXPECT(cudaEventSynchronize(event) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  RawGate gate;
  gate.close(first);
  EXPECT(cudaEventRecord(event, first) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  EXPECT(cudaStreamSynchronize(second) == cudaSuccess);  // hangs if the later record counted
  gate.open();
  EXPECT(cudaStreamSynchronize(first) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaSuccess);
}

TEST(a_wait_holds_the_stream_back) {
  const Clean clean;
  const RawStream first;
  const RawStream second;
  const RawEvent event;
  const RawEvent behind;
  RawGate gate;
  gate.close(first);
  EXPECT(cudaEventRecord(event, first) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  EXPECT(cudaEventRecord(behind, second) == cudaSuccess);
  EXPECT(cudaEventQuery(behind) == cudaErrorNotReady);
  gate.open();
  EXPECT(cudaEventSynchronize(behind) == cudaSuccess);
}

TEST(the_legacy_stream_waits_for_blocking_streams_alone) {
  const Clean clean;
  const RawEvent event;
  {
    const RawStream other;
    RawGate gate;
    gate.close(other);
    EXPECT(cudaStreamSynchronize(nullptr) == cudaSuccess);  // not held up
  }
  const RawStream blocking(cudaStreamDefault);
  RawGate gate;
  gate.close(blocking);
  EXPECT(cudaEventRecord(event, cudaStreamLegacy) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  gate.open();
  EXPECT(cudaEventSynchronize(event) == cudaSuccess);
}

TEST(a_blocking_stream_waits_for_the_legacy_one) {
  const Clean clean;
  const RawStream blocking(cudaStreamDefault);
  const RawEvent event;
  RawGate gate;
  gate.close(nullptr);
  EXPECT(cudaEventRecord(event, blocking) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  gate.open();
  EXPECT(cudaEventSynchronize(event) == cudaSuccess);
}

TEST(a_small_pageable_copy_is_taken_at_once_and_a_large_one_waits) {
  const Clean clean;
  const RawStream stream;
  const RawBlock block(size_t{1} << 20);
  std::vector<char> bytes(size_t{1} << 20, 7);
  {
    RawGate gate;
    gate.close(stream);
    EXPECT(cudaMemcpyAsync(block.data(), bytes.data(), 100, cudaMemcpyHostToDevice, stream) ==
           cudaSuccess);
    bytes[0] = 8;  // the copy has its own
  }
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT_EQ(int{block.real()[0]}, 7);
  EXPECT_EQ(int{block.real()[100]}, 0xCB);
  EXPECT(cudaMemcpyAsync(block.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                         stream) == cudaSuccess);
  EXPECT_EQ(cuda_emulated::live().pending_operations, size_t{0});
  EXPECT_EQ(int{block.real()[0]}, 8);
}

TEST(what_was_queued_on_a_destroyed_stream_is_carried_out) {
  const Clean clean;
  const RawBlock block(64);
  const RawBlock other(64);
  const RawEvent copied;
  {
    RawGate gate;
    {
      const RawStream stream;
      gate.close(stream);
      std::memset(other.real(), 5, 64);
      EXPECT(cudaMemcpyAsync(block.data(), other.data(), 64, cudaMemcpyDeviceToDevice, stream) ==
             cudaSuccess);
      EXPECT(cudaEventRecord(copied, stream) == cudaSuccess);
    }
    EXPECT_EQ(int{block.real()[63]}, 0xCB);
  }
  EXPECT(cudaEventSynchronize(copied) == cudaSuccess);
  EXPECT_EQ(int{block.real()[63]}, 5);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
