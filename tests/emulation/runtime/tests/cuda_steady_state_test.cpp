// What the pipeline asks of CUDA for each batch once it runs: nothing that waits, allocates, loads
// a kernel or synchronises on the prefetch thread and on the consumer's, and not too many calls.

#include <cstdio>

#include "emulator_test.h"
#include "epoch.h"

namespace fastloader::testing {
namespace {

constexpr const char* kPrefetch = "fl-prefetch";
constexpr size_t kWarm = 6;
constexpr size_t kBatches = 100;

using Calls = std::map<std::string, uint64_t>;  // by function

std::map<std::string, Calls> since(const cuda_emulated::Counts& before) {
  std::map<std::string, Calls> made;
  for (const auto& [thread, of] : cuda_emulated::counts()) {
    for (const auto& [function, count] : of) {
      uint64_t had = 0;
      const auto found = before.find(thread);
      if (found != before.end() && found->second.count(function) > 0) {
        had = found->second.at(function);
      }
      if (count > had) made[thread][function] = count - had;
    }
  }
  return made;
}

/// The calls of the prefetch thread for a batch; fails for a call that no thread may make.
double steady(int device, bool default_stream, const std::vector<Batch>& batches) {
  const Clean clean;
  const ConsumerStream stream(device, default_stream);
  cuda_emulated::Counts warm;
  const cuda_emulated::Counts before = cuda_emulated::counts();
  std::map<std::string, Calls> made;
  run_epoch(open_or_skip("cuda"), device, batches, kBatches + 1, stream, [&](size_t n) {
    if (n == kWarm) warm = cuda_emulated::counts();
    if (n == kBatches) made = since(warm);
  });
  EXPECT(cuda_emulated::misuses().empty());
  // From its first batch on: the kernels are loaded with the first stream of the device.
  std::map<std::string, Calls> all = since(before);
  EXPECT_EQ(all[kPrefetch]["(kernel load)"], uint64_t{0});
  uint64_t calls = 0;
  for (const auto& [thread, of] : made) {
    for (const auto& [function, count] : of) {
      std::printf("      %-16s %-40s %6.2f a batch\n", thread.c_str(), function.c_str(),
                  static_cast<double>(count) / (kBatches - kWarm));
      if (thread == kPrefetch) calls += count;
      const bool reaper_may = thread == "fl-reaper" && function == "cudaEventSynchronize";
      if ((cuda_emulated::synchronises(function) && !reaper_may) ||
          cuda_emulated::allocates(function)) {
        throw Failure{thread + " calls " + function};
      }
    }
  }
  return static_cast<double>(calls) / (kBatches - kWarm);
}

// The copy stream waits for the credit, records, copies and records. The kernel stream waits, takes
// the two leaves apart and records.
constexpr double kTwoLeaves = 8;

TEST(plain_batches) { EXPECT(steady(0, false, {plain_batch({4096, 512}, 1)}) <= kTwoLeaves); }

TEST(plain_batches_of_the_default_stream) {
  EXPECT(steady(0, true, {plain_batch({4096, 512}, 1)}) <= kTwoLeaves);
}

TEST(plain_batches_on_the_second_device) {
  EXPECT(steady(1, false, {plain_batch({4096, 512}, 1)}) <= kTwoLeaves);
}

TEST(batches_without_kernels) {
  // All of that but the two leaves: the kernel stream is asked twice for nothing but the order. It
  // is what makes the newest ticket stand for all earlier work.
  EXPECT(steady(0, false, {plain_batch({4096}, 1)}) <= kTwoLeaves - 2);
}

TEST(augmented_batches) { steady(0, false, {image_batch(4), image_batch(5)}); }

TEST(the_first_kernel_on_a_device_is_loaded_before_the_prefetch_thread_needs_it) {
  const char* name = "the_first_kernel_on_a_device_is_loaded_before_the_prefetch_thread_needs_it";
  if (!is_child_of(name)) {  // in a process of its own, where no kernel is loaded yet
    const SelfEnd self = is_child() ? SelfEnd{{0, 0}, {}} : run_alone(name);
    if (self.end.exit_code != 0) throw Failure{self.said};
    return;
  }
  const ConsumerStream stream(0);
  run_epoch(open_or_skip("cuda"), 0, {image_batch(4)}, 3, stream);
  cuda_emulated::Counts counts = cuda_emulated::counts();
  EXPECT_EQ(counts[kPrefetch]["(kernel load)"], uint64_t{0});
  EXPECT(cuda_emulated::counts_by_function()["(kernel load)"] > 0);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
