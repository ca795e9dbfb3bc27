// What the CUDA backend tells of a call that CUDA refuses, and what it leaves behind on the thread.

#include "backend/registry.h"
#include "base/error.h"
#include "emulator_test.h"
#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

Backend& cuda() { return open_or_skip("cuda"); }

cuda_emulated::Fault refused(const char* function) {
  return {function, 1, cudaErrorMemoryAllocation, true};
}

/// As an earlier call of this thread that failed, torch's or the user's.
void leave_an_error() {
  const cuda_emulated::Tolerance tolerance;
  EXPECT(cudaFree(reinterpret_cast<void*>(0x10)) == cudaErrorInvalidValue);
  cuda_emulated::clear_misuses();
}

TEST(a_stale_error_of_the_thread_is_not_blamed_on_a_launch) {
  const Clean clean;
  const auto stream = cuda().create_stream(0);
  const auto block = cuda().allocate_device(0, 4096);
  leave_an_error();
  const NormalizeSpec spec =
      make_spec(1, 4, 4, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat32);
  auto* bytes = static_cast<uint8_t*>(block->data());
  stream->normalize_async(spec, bytes, bytes + 2048);
  stream->synchronize();  // throws if it was
}

TEST(a_refused_device_is_not_blamed_on_a_later_launch) {
  const Clean clean;
  const auto failed = cuda().create_stream(0);
  const auto stream = cuda().create_stream(0);
  const auto block = cuda().allocate_device(0, 4096);
  cuda_emulated::inject({"cudaThreadExchangeStreamCaptureMode", 1, cudaErrorUnknown});
  const auto other = cuda().allocate_device(0, 64);
  failed->copy_d2d_async(static_cast<char*>(other->data()) + 32, other->data(), 16);
  const NormalizeSpec spec =
      make_spec(1, 4, 4, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat32);
  auto* bytes = static_cast<uint8_t*>(block->data());
  stream->normalize_async(spec, bytes, bytes + 2048);
  stream->synchronize();
  cuda_emulated::drain();
}

TEST(asking_an_event_leaves_no_last_error) {
  const Clean clean;
  const auto stream = cuda().create_stream(0);
  const auto event = cuda().create_event(0);
  RawGate gate;
  gate.close(reinterpret_cast<cudaStream_t>(stream->handle()));
  const Ticket ticket = stream->record(*event);
  EXPECT(!ticket.done());
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
  gate.open();
  stream->synchronize();
}

TEST(a_device_that_cannot_be_selected_is_named) {
  const Clean clean;
  cuda();
  cuda_emulated::inject(refused("cudaSetDevice"));
  EXPECT_THROW(cuda().create_stream(0), BackendError, "cudaSetDevice failed");
  EXPECT_THROW(cuda().create_event(0), BackendError, "cudaSetDevice failed");
  EXPECT_THROW(cuda().allocate_host(0, 1), BackendError, "cudaSetDevice failed");
  EXPECT_THROW(cuda().allocate_device(0, 1), BackendError, "cudaSetDevice failed");
  EXPECT_THROW(cuda().attach_thread(0), BackendError, "cudaSetDevice failed");
}

TEST(a_device_that_cannot_be_selected_for_a_copy_is_named) {
  const Clean clean;
  const auto stream = cuda().create_stream(0);
  const auto block = cuda().allocate_device(0, 64);
  cuda_emulated::inject({"cudaSetDevice", 1, cudaErrorMemoryAllocation});
  stream->copy_d2d_async(static_cast<char*>(block->data()) + 32, block->data(), 16);
  EXPECT_THROW(stream->check(), BackendError, "cudaSetDevice failed");
}

TEST(a_count_of_devices_that_fails_is_named) {
  const char* name = "a_count_of_devices_that_fails_is_named";
  if (!is_child_of(name)) {  // in a process of its own: a backend is opened once
    const SelfEnd self = is_child() ? SelfEnd{{0, 0}, {}} : run_alone(name);
    if (self.end.exit_code != 0) throw Failure{self.said};
    return;
  }
  cuda_emulated::inject(refused("cudaGetDeviceCount"));
  const std::string told = describe_cuda().problem;
  EXPECT(told.find("cudaGetDeviceCount failed") != std::string::npos);
  EXPECT_THROW(open_backend("cuda"), BackendUnavailable, "cudaGetDeviceCount failed");
}

TEST(what_cannot_be_pinned_serves_and_says_so) {
  const Clean clean;
  cuda();
  cuda_emulated::inject(refused("cudaHostRegister"));
  const auto host = cuda().allocate_host(0, 4096);
  EXPECT(!host->pinned());
  EXPECT(host->why_not_pinned().find("cudaHostRegister") != std::string::npos);
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
}

TEST(a_refused_copy_starts_no_kernel_on_what_was_never_written) {
  const Clean clean;
  const AugmentCase made = [] {
    std::mt19937 random(3);
    return make_augment_case(
        make_spec(2, 6, 5, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16), kFills[0],
        kBlends[0], 2, random);
  }();
  Batch batch;
  BatchLayout::Leaf leaf;
  leaf.bytes = made.in.size();
  leaf.augment = made.spec;
  batch.in = {made.in, made.records()};
  batch.layout = std::make_shared<const BatchLayout>(
      std::vector<BatchLayout::Leaf>{leaf, {batch.in[1].size(), {}, 0}});
  std::vector<std::unique_ptr<DeviceBlock>> blocks;
  std::vector<void*> outputs;
  for (const BatchLayout::Leaf& each : batch.layout->leaves()) {
    blocks.push_back(cuda().allocate_device(0, each.out_bytes() + 1));
    outputs.push_back(blocks.back()->data());
  }
  const auto staging = cuda().allocate_device(0, batch.layout->packed_bytes());
  {
    Prefetcher prefetcher(cuda(), 0, 1, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    cuda_emulated::inject({"cudaMemcpyAsync", 1, cudaErrorMemoryAllocation});
    prefetcher.give_credit(0, batch.layout, outputs, staging->data(), 0);
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
    Ticket ticket;
    EXPECT_THROW(
        prefetcher.ring().wait_arrival(Ring::Clock::now() + std::chrono::minutes(1), &ticket),
        BackendError, "cudaMemcpyAsync failed");
  }
  cuda_emulated::drain();
  EXPECT(cuda_emulated::broken(0) == cudaSuccess);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
