// What only the host twin has: delays, failures on request, guarded device memory, and the promise
// that ThreadSanitizer sees an order where a ticket made one and nowhere else.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "backend/host/host_memory.h"
#include "backend_test.h"
#include "base/error.h"
#include "base/process.h"
#include "child_process.h"
#include "gate.h"

namespace fastloader::testing {
namespace {

using std::chrono::microseconds;

HostBackendOptions delays(uint64_t seed, microseconds longest) {
  HostBackendOptions options;
  options.delay_seed = seed;
  options.max_delay = longest;
  return options;
}

TEST(delays_depend_on_the_seed_alone) {
  const HostBackendOptions options = delays(5, microseconds(100));
  bool seeds_differ = false;
  bool streams_differ = false;
  bool tasks_differ = false;
  for (uint64_t stream = 1; stream <= 4; ++stream) {
    for (uint64_t task = 1; task <= 50; ++task) {
      const microseconds delay = host_task_delay(options, stream, task);
      EXPECT(delay >= microseconds(0) && delay <= microseconds(100));
      EXPECT(delay == host_task_delay(options, stream, task));
      seeds_differ |= delay != host_task_delay(delays(6, microseconds(100)), stream, task);
      streams_differ |= delay != host_task_delay(options, stream + 1, task);
      tasks_differ |= delay != host_task_delay(options, stream, task + 1);
    }
  }
  EXPECT(seeds_differ);
  EXPECT(streams_differ);
  EXPECT(tasks_differ);
  EXPECT(host_task_delay(delays(0, microseconds(100)), 1, 1) == microseconds(0));
  EXPECT(host_task_delay(delays(5, microseconds(0)), 1, 1) == microseconds(0));
}

TEST(delays_happen) {
  const HostBackendOptions options = delays(3, microseconds(5000));
  HostBackend backend(options);
  const auto stream = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const auto begin = std::chrono::steady_clock::now();
  stream->record(*event).wait_host();
  EXPECT(std::chrono::steady_clock::now() - begin >= host_task_delay(options, 1, 1));
}

TEST(the_nth_call_fails_and_nothing_is_done_behind_it) {
  for (uint64_t n = 1; n <= 4; ++n) {
    HostBackendOptions options;
    options.fail_on_call = n;
    HostBackend backend(options);
    const auto stream = backend.create_stream(0);
    const auto event = backend.create_event(0);
    NormalizeSpec spec;
    spec.batch = 1;
    spec.height = 1;
    spec.channels = 1;
    spec.width = 16;
    spec.scale[0] = 1.0f;
    alignas(16) uint8_t cells[16] = {};
    alignas(16) float floats[16] = {};
    const uint8_t one[16] = {1};
    uint8_t back[16] = {};
    const Ticket before = stream->record(*event);  // not counted: tickets always complete
    before.wait_host();
    stream->copy_h2d_async(cells, one, 16);
    stream->copy_d2d_async(cells + 8, cells, 8);
    stream->copy_d2h_async(back, cells, 16);
    stream->normalize_async(spec, cells, floats);
    const Ticket ticket = stream->record(*event);
    ticket.wait_host();
    const char* calls[] = {"copy_h2d", "copy_d2d", "copy_d2h", "normalize"};
    EXPECT_THROW(stream->synchronize(), BackendError, calls[n - 1]);
    EXPECT_THROW(stream->check(), BackendError, "call " + std::to_string(n));
    EXPECT_THROW(stream->check(), BackendError, "host device 0");
    EXPECT_EQ(int{cells[0]}, n == 1 ? 0 : 1);
    EXPECT_EQ(int{cells[8]}, n <= 2 ? 0 : 1);
    EXPECT_EQ(int{back[0]}, n <= 3 ? 0 : 1);
    EXPECT_EQ(floats[0], 0.0f);
  }
}

TEST(a_failure_on_the_callers_own_stream_is_kept_too) {
  HostBackendOptions options;
  options.fail_on_call = 1;
  HostBackend backend(options);
  const auto stream = backend.wrap_external(0, 0);
  uint8_t cell = 0;
  const uint8_t one = 1;
  stream->copy_h2d_async(&cell, &one, 1);
  EXPECT_EQ(int{cell}, 0);
  EXPECT_THROW(stream->check(), BackendError, "copy_h2d");
}

TEST(pinning_can_fail_and_says_why) {
  HostBackendOptions options;
  options.fail_pinning = true;
  HostBackend backend(options);
  const auto block = backend.allocate_host(0, 100);
  EXPECT(!block->pinned());
  EXPECT(block->why_not_pinned().find("pinning") != std::string::npos);
  static_cast<char*>(block->data())[99] = 1;
  HostBackend other;
  EXPECT(other.allocate_host(0, 100)->pinned());
}

TEST(the_callers_own_stream_works_at_once) {
  HostBackend backend;
  const auto stream = backend.wrap_external(0, 0);
  const auto event = backend.create_event(0);
  EXPECT_EQ(stream->handle(), uintptr_t{0});
  uint8_t cell = 0;
  const uint8_t one = 1;
  stream->copy_h2d_async(&cell, &one, 1);
  EXPECT_EQ(int{cell}, 1);
  EXPECT(stream->record(*event).done());
}

TEST(the_callers_own_stream_blocks_in_wait) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const auto own = backend.wrap_external(0, 0);
  const auto block = backend.allocate_device(0, 8);
  const Bytes bytes = pattern(8, 1);
  Gate gate;
  gate.close(*stream);
  stream->copy_h2d_async(block->data(), bytes.data(), 8);
  const Ticket ticket = stream->record(*event);
  std::thread opener([&gate] {
    gate.wait_until_reached();
    gate.open();
  });
  own->wait(ticket);
  EXPECT(ticket.done());
  opener.join();
  EXPECT(download(*own, block->data(), 8) == bytes);
}

TEST(ordinary_memory_can_be_a_destination) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  const Bytes bytes = pattern(32, 1);
  Bytes torch_memory(32, 0);
  stream->copy_h2d_async(torch_memory.data(), bytes.data(), 32);
  stream->synchronize();
  EXPECT(torch_memory == bytes);
}

TEST(device_memory_is_unusable_outside_tasks) {
  HostBackend backend;
  const auto block = backend.allocate_device(0, 100);
  const char* data = static_cast<const char*>(block->data());
  EXPECT(real_address(data) != data);
  EXPECT_EQ(in_forked_child([&] { peek(data); }).signal, SIGSEGV);
  EXPECT_EQ(in_forked_child([&] { peek(data + 99); }).signal, SIGSEGV);
}

TEST(only_handles_of_live_streams_are_taken) {
  HostBackend backend;
  auto stream = backend.create_stream(0);
  const uintptr_t handle = stream->handle();
  backend.wrap_external(0, handle);
  EXPECT_THROW(backend.wrap_external(0, handle + 1), InvalidArgument, "handle");
  auto wrapped = backend.wrap_external(0, handle);
  stream.reset();
  EXPECT_THROW(backend.wrap_external(0, handle), InvalidArgument, "handle");
  EXPECT_THROW(wrapped->synchronize(), BackendError, "destroyed");
}

TEST(devices_do_not_mix) {
  HostBackendOptions options;
  options.devices = 2;
  HostBackend backend(options);
  const auto zero = backend.create_stream(0);
  const auto one = backend.create_stream(1);
  const auto event = backend.create_event(1);
  EXPECT_THROW(zero->record(*event), InvalidArgument, "device 1");
  EXPECT_THROW(backend.wrap_external(0, one->handle()), InvalidArgument, "device 0");
  zero->wait(one->record(*event));  // waiting across devices is allowed
  zero->synchronize();
  EXPECT_EQ(backend.allocate_device(1, 8)->device(), 1);
  options.devices = 0;
  EXPECT_THROW(HostBackend{options}, InvalidArgument, "device");
}

TEST(an_outstanding_event_cannot_change_streams) {
  HostBackend backend;
  const auto first = backend.create_stream(0);
  const auto second = backend.create_stream(0);
  const auto event = backend.create_event(0);
  Gate gate;
  gate.close(*first);
  const Ticket ticket = first->record(*event);
  EXPECT_THROW(second->record(*event), InvalidArgument, "outstanding");
  gate.open();
  ticket.wait_host();
  second->record(*event).wait_host();
}

TEST(twins_do_not_mix) {
  HostBackend backend;
  HostBackend other;
  const auto stream = backend.create_stream(0);
  const auto event = other.create_event(0);
  EXPECT_THROW(stream->record(*event), InvalidArgument, "another backend");
  EXPECT_THROW(stream->wait(Ticket{event.get(), 0}), InvalidArgument, "another backend");
}

TEST(what_a_backend_made_may_outlive_it) {
  auto backend = std::make_unique<HostBackend>();
  const auto stream = backend->create_stream(0);
  const auto event = backend->create_event(0);
  backend.reset();
  stream->record(*event).wait_host();
}

TEST(a_forked_child_is_told) {
  HostBackend backend;
  const auto stream = backend.create_stream(0);
  const auto event = backend.create_event(0);
  Gate gate;
  gate.close(*stream);
  const Ticket ticket = stream->record(*event);
  const ChildEnd end = in_forked_child([&] {
    EXPECT_THROW(stream->synchronize(), BackendError, "forked");
    EXPECT_THROW(stream->copy_d2d_async(nullptr, nullptr, 0), BackendError, "forked");
    EXPECT_THROW(ticket.wait_host(), BackendError, "forked");
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
}

TEST(a_forked_child_can_open_its_own) {
  if (FASTLOADER_TSAN) throw Skip{"ThreadSanitizer forbids threads in a forked child"};
  Backend& parents = open_backend("host");
  const ChildEnd end = in_forked_child([&] {
    Backend& backend = open_backend("host");
    EXPECT(&backend != &parents);
    EXPECT(&backend == &open_backend("host"));
    const auto stream = backend.create_stream(0);
    const auto event = backend.create_event(0);
    stream->record(*event).wait_host();
  });
  EXPECT_EQ(end.exit_code, 0);
}

TEST(backends_are_opened_once_and_by_name) {
  EXPECT(&open_backend("host") == &open_backend("host"));
  EXPECT_EQ(std::string(open_backend("host").name()), std::string("host"));
  EXPECT_THROW(open_backend("hip"), InvalidArgument, "'hip'");
}

TEST(a_stream_that_is_stuck_does_not_hold_up_exit) {
  const ChildEnd end = in_new_process("--exit-with-a-stuck-stream");
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
}

TEST(thread_sanitizer_sees_a_missing_ticket) {
  if (!FASTLOADER_TSAN) throw Skip{"only a ThreadSanitizer build can see it"};
  EXPECT(in_new_process("--wait-for-the-reader").exit_code == 0);
  EXPECT(in_new_process("--do-not-wait-for-the-reader", Says::kNothing).exit_code == 66);
}

/// A consumer reads a batch while the next one is being written over it, unless the writer waits
/// for the consumer's ticket. The streams meet often through other tickets, as a ring's do; none of
/// these may be taken for the one that is missing.
///
/// Every write comes behind the read before it in time, by a count that orders no threads. A reader
/// that is late would have its tasks from a caller that has seen the later writes, and so in order.
int write_over_a_reader(bool wait_for_it) {
  HostBackend backend;
  const auto writer = backend.create_stream(0);
  const auto reader = backend.create_stream(0);
  const auto block = backend.allocate_device(0, 64);
  const Bytes bytes = pattern(64, 1);
  Bytes back(64, 0);
  std::vector<std::unique_ptr<Event>> events;
  std::atomic<int> reads{0};
  Ticket read;
  for (int round = 0; round < 20; ++round) {
    if (wait_for_it) writer->wait(read);
    writer->copy_h2d_async(block->data(), bytes.data(), 64);
    const Ticket written = writer->record(*events.emplace_back(backend.create_event(0)));
    reader->wait(written);
    reader->copy_d2h_async(back.data(), block->data(), 64);
    dynamic_cast<HostFunctionStream&>(*reader).host_function_async(
        [&reads] { reads.fetch_add(1, std::memory_order_relaxed); });
    read = reader->record(*events.emplace_back(backend.create_event(0)));
    written.wait_host();
    backend.wrap_external(0, reader->handle())->check();
    while (reads.load(std::memory_order_relaxed) <= round) std::this_thread::yield();
  }
  writer->synchronize();
  reader->synchronize();
  return 0;
}

/// Statics are destroyed while a task of theirs still blocks.
int exit_with_a_stuck_stream() {
  static HostBackend backend;
  static Gate* gate = new Gate;
  static const auto host = backend.allocate_host(0, 64);
  static const auto stream = backend.create_stream(0);
  static const auto wrapped = backend.wrap_external(0, stream->handle());
  gate->close(*stream);
  gate->wait_until_reached();
  std::atexit(set_process_exiting);  // as the bindings do: before any static is destroyed
  return 0;
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) {
  using namespace fastloader::testing;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--wait-for-the-reader") return write_over_a_reader(true);
  if (mode == "--do-not-wait-for-the-reader") return write_over_a_reader(false);
  if (mode == "--exit-with-a-stuck-stream") return exit_with_a_stuck_stream();
  return run_all_tests(argc, argv);
}
