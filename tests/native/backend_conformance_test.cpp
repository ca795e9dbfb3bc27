// The contract of backend.h, point by point, over every implementation.

#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backend_test.h"
#include "base/error.h"
#include "child_process.h"
#include "gate.h"

namespace fastloader::testing {
namespace {

void fail_next(Stream& stream, const char* what) {
  auto* functions = dynamic_cast<HostFunctionStream*>(&stream);
  EXPECT(functions != nullptr);
  functions->host_function_async([what] { throw std::runtime_error(what); });
}

// --- 1: owners, FIFO

BACKEND_TEST(work_is_first_in_first_out) {
  constexpr size_t kTasks = 2000;
  const auto stream = backend.create_stream(0);
  const auto cells = backend.allocate_device(0, kTasks + 1);
  auto* cell = static_cast<uint8_t*>(cells->data());
  upload(*stream, cell, Bytes(kTasks + 1, 0));
  const uint8_t token = 0xA5;
  stream->copy_h2d_async(cell, &token, 1);
  // Each copy hands on what the one before it brought; one out of turn hands on a zero.
  for (size_t i = 0; i < kTasks; ++i) stream->copy_d2d_async(cell + i + 1, cell + i, 1);
  EXPECT(download(*stream, cell, kTasks + 1) == Bytes(kTasks + 1, token));
}

BACKEND_TEST(host_functions_run_in_order) {
  const auto stream = backend.create_stream(0);
  auto* functions = dynamic_cast<HostFunctionStream*>(stream.get());
  EXPECT(functions != nullptr);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) functions->host_function_async([&order, i] { order.push_back(i); });
  stream->synchronize();
  EXPECT_EQ(order.size(), size_t{100});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

BACKEND_TEST(owners_can_be_handed_on) {
  auto stream = backend.create_stream(0);
  auto event = backend.create_event(0);
  const Ticket ticket = stream->record(*event);
  const auto other_stream = std::move(stream);
  const auto other_event = std::move(event);
  ticket.wait_host();
  EXPECT(ticket.done());
  EXPECT(other_stream->record(*other_event).generation > ticket.generation);
  other_stream->synchronize();
}

// --- 2: generations

BACKEND_TEST(wait_captures_the_generation_when_called) {
  const auto first = backend.create_stream(0);
  const auto second = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const auto after = backend.create_event(0);
  Gate early;
  Gate late;
  early.close(*first);
  const Ticket captured = first->record(*event);
  second->wait(captured);
  const Ticket passed = second->record(*after);
  late.close(*first);
  const Ticket newer = first->record(*event);
  EXPECT(!passed.done());
  early.open();
  passed.wait_host();  // hangs if the second record had extended the wait
  EXPECT(!newer.done());
  late.open();
  newer.wait_host();
  EXPECT(newer.generation > captured.generation);
}

BACKEND_TEST(an_event_can_be_recorded_many_times) {
  const auto stream = backend.create_stream(0);
  const auto event = backend.create_event(0);
  Ticket last;
  for (int i = 0; i < 200; ++i) {
    const Ticket ticket = stream->record(*event);
    EXPECT(ticket.generation > last.generation);
    ticket.wait_host();
    EXPECT(ticket.done());
    EXPECT(last.done());
    last = ticket;
  }
}

BACKEND_TEST(waiting_for_a_finished_ticket_passes) {
  const auto first = backend.create_stream(0);
  const auto second = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const Ticket ticket = first->record(*event);
  ticket.wait_host();
  second->wait(ticket);
  second->synchronize();
  first->wait(ticket);
  first->synchronize();
}

BACKEND_TEST(an_event_may_go_before_those_who_waited_for_it) {
  const auto first = backend.create_stream(0);
  const auto second = backend.create_stream(0);
  Gate gate;
  gate.close(*second);
  {
    const auto event = backend.create_event(0);
    const Ticket ticket = first->record(*event);
    second->wait(ticket);
    ticket.wait_host();
  }
  gate.open();
  second->synchronize();
}

// --- 3: done means finished

BACKEND_TEST(a_default_ticket_is_done) {
  const Ticket ticket;
  EXPECT(ticket.done());
  ticket.wait_host();
  const auto stream = backend.create_stream(0);
  stream->wait(ticket);
  stream->synchronize();
}

BACKEND_TEST(a_ticket_is_done_only_when_its_work_has_finished) {
  const auto event = backend.create_event(0);
  const auto block = backend.allocate_device(0, 64);
  const PinnedBytes sent(backend, 64);
  const PinnedBytes back(backend, 64);
  sent.fill(pattern(64, 1));
  const auto stream = backend.create_stream(0);
  Gate gate;
  gate.close(*stream);
  stream->copy_h2d_async(block->data(), sent.data(), sent.size);
  stream->copy_d2h_async(back.data(), block->data(), back.size);
  const Ticket ticket = stream->record(*event);
  gate.wait_until_reached();  // popped and running is not done
  EXPECT(!ticket.done());
  gate.open();
  ticket.wait_host();
  EXPECT(ticket.done());
  EXPECT(back == pattern(64, 1));
}

BACKEND_TEST(tickets_order_streams) {
  constexpr size_t kRounds = 100;
  constexpr size_t kBytes = 512;
  const auto in = backend.create_stream(0);
  const auto out = backend.create_stream(0);
  const auto block = backend.allocate_device(0, kBytes);
  std::vector<Bytes> sent;
  std::vector<Bytes> received(kRounds, Bytes(kBytes, 0));
  std::vector<std::unique_ptr<Event>> events;  // two a round: none is recorded while outstanding
  for (size_t i = 0; i < kRounds; ++i) sent.push_back(pattern(kBytes, static_cast<unsigned>(i)));
  Ticket free;
  for (size_t i = 0; i < kRounds; ++i) {
    in->wait(free);
    in->copy_h2d_async(block->data(), sent[i].data(), kBytes);
    out->wait(in->record(*events.emplace_back(backend.create_event(0))));
    out->copy_d2h_async(received[i].data(), block->data(), kBytes);
    free = out->record(*events.emplace_back(backend.create_event(0)));
  }
  free.wait_host();
  for (size_t i = 0; i < kRounds; ++i) EXPECT(received[i] == sent[i]);
}

BACKEND_TEST(a_ticket_holds_another_stream_back) {
  const auto first = backend.create_stream(0);
  const auto second = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const auto after = backend.create_event(0);
  Gate gate;
  gate.close(*first);
  second->wait(first->record(*event));
  const Ticket passed = second->record(*after);
  gate.wait_until_reached();
  EXPECT(!passed.done());
  gate.open();
  passed.wait_host();
}

// --- 4: failures

BACKEND_TEST(the_first_failure_is_sticky_and_stops_nobody) {
  const auto stream = backend.create_stream(0);
  const auto other = backend.create_stream(0);
  const auto event = backend.create_event(0);
  const auto block = backend.allocate_device(0, 16);
  const Bytes bytes = pattern(16, 2);
  Bytes back(16, 0);
  fail_next(*stream, "the first");
  fail_next(*stream, "the second");
  stream->copy_h2d_async(block->data(), bytes.data(), bytes.size());
  const Ticket ticket = stream->record(*event);
  other->wait(ticket);
  other->copy_d2h_async(back.data(), block->data(), back.size());
  other->synchronize();  // waiters wake, and the error is not theirs
  EXPECT(ticket.done());
  EXPECT(back == bytes);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(stream->synchronize(), BackendError, "the first");
    EXPECT_THROW(stream->check(), BackendError, "host_function");
    EXPECT_THROW(stream->check(), BackendError, "device 0");
  }
}

BACKEND_TEST(check_does_not_block) {
  const auto stream = backend.create_stream(0);
  Gate gate;
  gate.close(*stream);
  stream->check();
  gate.open();
}

// --- 5: destruction

BACKEND_TEST(destroying_a_stream_drains_it) {
  const auto block = backend.allocate_device(0, 64);
  const PinnedBytes sent(backend, 64);
  const PinnedBytes back(backend, 64);
  sent.fill(pattern(64, 3));
  auto stream = backend.create_stream(0);
  Gate gate;
  gate.close(*stream);
  stream->copy_h2d_async(block->data(), sent.data(), sent.size);
  stream->copy_d2h_async(back.data(), block->data(), back.size);
  gate.wait_until_reached();
  std::thread opener([&gate] { gate.open(); });
  stream.reset();
  opener.join();
  EXPECT(back == pattern(64, 3));
}

BACKEND_TEST(a_failed_stream_can_be_destroyed) {
  auto stream = backend.create_stream(0);
  fail_next(*stream, "whatever");
  stream.reset();
}

BACKEND_TEST(destroying_in_a_forked_child_does_not_hang) {
  auto stream = backend.create_stream(0);
  auto event = backend.create_event(0);
  auto host = backend.allocate_host(0, 4096);
  auto device = backend.allocate_device(0, 4096);
  Gate gate;
  gate.close(*stream);
  const ChildEnd end = in_forked_child([&] {
    stream.reset();
    event.reset();
    host.reset();
    device.reset();
  });
  gate.open();
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  stream->synchronize();
}

// --- 6: streams made elsewhere

BACKEND_TEST(a_wrapped_stream_is_the_same_stream_and_not_owned) {
  const auto stream = backend.create_stream(0);
  const auto other = backend.create_stream(0);
  EXPECT(stream->handle() != 0);
  EXPECT(stream->handle() != other->handle());
  const auto event = backend.create_event(0);
  Gate gate;
  {
    const auto wrapped = backend.wrap_external(0, stream->handle());
    EXPECT_EQ(wrapped->handle(), stream->handle());
    gate.close(*stream);
    const Ticket ticket = wrapped->record(*event);
    EXPECT(!ticket.done());
    gate.open();
    ticket.wait_host();
  }
  stream->record(*event).wait_host();
}

BACKEND_TEST(handle_zero_is_the_default_stream) {
  const auto stream = backend.create_stream(0);
  const auto standard = backend.wrap_external(0, 0);
  const auto made = backend.create_event(0);
  const auto used = backend.create_event(0);
  const auto block = backend.allocate_device(0, 256);
  const Bytes bytes = pattern(256, 4);
  Bytes back(256, 0);
  stream->copy_h2d_async(block->data(), bytes.data(), bytes.size());
  standard->wait(stream->record(*made));
  standard->copy_d2h_async(back.data(), block->data(), back.size());
  const Ticket ticket = standard->record(*used);
  stream->wait(ticket);
  stream->synchronize();
  EXPECT(ticket.done());
  EXPECT(back == bytes);
  standard->synchronize();
  standard->check();
}

BACKEND_TEST(a_batch_that_no_launch_can_take_is_refused) {
  const auto stream = backend.create_stream(0);
  const auto block = backend.allocate_device(0, 64);
  NormalizeSpec spec;  // of one pixel each, into planes: a warp makes one image
  spec.batch = size_t{1} << 31;
  spec.height = 1;
  spec.width = 1;
  spec.channels = 3;
  spec.in_layout = Layout::kNhwc;
  spec.out_layout = Layout::kNchw;
  EXPECT_THROW(stream->normalize_async(spec, block->data(), block->data()), InvalidArgument,
               "2147483648 images");
  AugmentSpec augment;
  augment.normalize = spec;
  augment.normalize.batch = augment.in_batch = size_t{1} << 30;
  augment.normalize.in_layout = Layout::kNchw;  // a warp makes a plane
  EXPECT_THROW(stream->augment_async(augment, block->data(), block->data(), block->data()),
               InvalidArgument, "augment: a batch of 1073741824 images");
  stream->check();
}

// --- 7: devices

BACKEND_TEST(a_device_that_is_not_there_is_refused) {
  EXPECT(backend.device_count() >= 1);
  for (const int device : {-1, backend.device_count()}) {
    EXPECT_THROW(backend.attach_thread(device), InvalidArgument, "device");
    EXPECT_THROW(backend.create_stream(device), InvalidArgument, "device");
    EXPECT_THROW(backend.wrap_external(device, 0), InvalidArgument, "device");
    EXPECT_THROW(backend.create_event(device), InvalidArgument, "device");
    EXPECT_THROW(backend.allocate_host(device, 1), InvalidArgument, "device");
    EXPECT_THROW(backend.allocate_device(device, 1), InvalidArgument, "device");
  }
}

BACKEND_TEST(threads_work_side_by_side) {
  std::vector<Bytes> back(4, Bytes(1000, 0));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < back.size(); ++t) {
    threads.emplace_back([&backend, &back, t] {
      backend.attach_thread(0);
      const auto stream = backend.create_stream(0);
      const auto event = backend.create_event(0);
      const auto block = backend.allocate_device(0, back[t].size());
      const Bytes bytes = pattern(back[t].size(), static_cast<unsigned>(t));
      stream->copy_h2d_async(block->data(), bytes.data(), bytes.size());
      stream->copy_d2h_async(back[t].data(), block->data(), back[t].size());
      stream->record(*event).wait_host();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < back.size(); ++t) {
    EXPECT(back[t] == pattern(back[t].size(), static_cast<unsigned>(t)));
  }
}

BACKEND_TEST(what_belongs_to_another_backend_is_refused) {
  struct ForeignEvent final : Event {
    bool done(uint64_t) const override { return true; }
    void wait_host(uint64_t) override {}
  } foreign;
  const auto stream = backend.create_stream(0);
  EXPECT_THROW(stream->record(foreign), InvalidArgument, "another backend");
  EXPECT_THROW(stream->wait(Ticket{&foreign, 1}), InvalidArgument, "another backend");
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
