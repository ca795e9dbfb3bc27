// Batches through the prefetcher on the twin: right bytes, right order, from any thread.
// Cancelling is in prefetcher_cancel_test.cpp, failures in prefetcher_failure_test.cpp, streams in
// prefetcher_stream_test.cpp.

#include "prefetcher_test.h"

#include <cstdlib>
#include <new>

#include <pthread.h>

#include "hooked_backend.h"

namespace {

// Allocations of the prefetcher's own thread outside of the backend, whose twin allocates tasks.
std::atomic<uint64_t> g_prefetch_allocations{0};

bool on_prefetch_thread() noexcept {
  thread_local const bool answer = [] {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    return std::strcmp(name, "fl-prefetch") == 0 || std::strcmp(name, "fl-reaper") == 0;
  }();
  return answer;
}

void* counted(size_t bytes) {
  if (fastloader::testing::t_calls_into_backend == 0 && on_prefetch_thread()) {
    ++g_prefetch_allocations;
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace fastloader::testing {
namespace {

/// `count` random batches through a fresh prefetcher, some errors among them, pushed by one thread
/// and checked by another.
void run_epochs(uint64_t seed, size_t depth, bool ahead) {
  HostBackendOptions options;
  options.delay_seed = seed;
  options.max_delay = std::chrono::microseconds(60);
  HostBackend backend(options);
  Prefetcher prefetcher(backend, 0, depth, kLimit);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int round = 0; round < 2; ++round) {
    const Ring::Epoch epoch = prefetcher.ring().open_epoch();
    std::map<uint64_t, Batch> batches;
    constexpr uint64_t kCount = 12;
    for (uint64_t i = 0; i < kCount; ++i) {
      // Runs of equal structure, as in real life, with changes.
      Batch& batch = batches[epoch.first_seq + i];
      if (i > 0 && random() % 2 == 0) {
        batch = batches[epoch.first_seq + i - 1];
      } else {
        batch = random_batch(random);
      }
    }
    const uint64_t error_at = epoch.first_seq + random() % kCount;
    Actor producer(
        [&] {
          for (uint64_t seq = epoch.first_seq; seq < epoch.first_seq + kCount; ++seq) {
            const Batch& batch = batches[seq];
            const WaitStatus waited =
                seq == error_at
                    ? prefetcher.ring().put(epoch.number, EntryKind::kError, kForever)
                    : prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever);
            EXPECT(waited == WaitStatus::kOk);
          }
          EXPECT(prefetcher.ring().put(epoch.number, EntryKind::kEnd, kForever) == WaitStatus::kOk);
        },
        [&] { prefetcher.close(); });
    Consumer consumer(backend, prefetcher, epoch.first_seq);
    const std::map<uint64_t, Batch>& known = batches;
    for (uint64_t seq = epoch.first_seq; seq < epoch.first_seq + kCount; ++seq) {
      if (ahead) consumer.top_up(known, 0, known.at(seq).layout);
      if (seq == error_at) {
        EXPECT(consumer.next(known, 0) == Arrival::kError);
        continue;
      }
      EXPECT(consumer.next(known, 0) == Arrival::kBatch);
      EXPECT_EQ(consumer.take()->wrong(known.at(seq)), -1);
    }
    EXPECT(consumer.next(known, 0) == Arrival::kEnd);
    producer.join();
    prefetcher.cancel({0});
  }
  EXPECT_EQ(prefetcher.ring().stats().delivered, uint64_t{22});
  prefetcher.close();
}

TEST(random_batches_arrive_whole_and_in_order) {
  static uint64_t seed = 0;
  for (int i = 0; i < 6; ++i) {
    ++seed;
    run_epochs(seed, 1 + seed % 4, seed % 2 == 0);
  }
}

TEST(one_thread_may_produce_and_consume) {
  for (const size_t depth : {size_t{1}, size_t{2}}) {
    HostBackend backend;
    Prefetcher prefetcher(backend, 0, depth, kLimit);
    std::mt19937 random(3);
    const Ring::Epoch epoch = prefetcher.ring().open_epoch();
    std::map<uint64_t, Batch> batches;
    Consumer consumer(backend, prefetcher, 0);
    for (uint64_t seq = 0; seq < 20; ++seq) {
      // As full as the ring takes it, then one comes out.
      while (batches.size() < seq + depth) {
        Batch batch = random_batch(random);
        // The slot may still be in the reaper's hands, for a moment.
        EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever) ==
               WaitStatus::kOk);
        batches[batches.size()] = std::move(batch);
      }
      EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
      EXPECT_EQ(consumer.take()->wrong(batches.at(seq)), -1);
    }
  }
}

std::shared_ptr<Reservation> reserved(Prefetcher& prefetcher, uint64_t epoch, size_t bytes) {
  std::shared_ptr<Reservation> place;
  EXPECT(prefetcher.reserve(epoch, bytes, kForever, &place) == WaitStatus::kOk);
  return place;
}

TEST(a_batch_made_in_its_slot_is_not_copied) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  std::map<uint64_t, Batch> batches;
  Consumer consumer(backend, prefetcher, 0);
  for (unsigned round = 0; round < 6; round += 2) {
    std::shared_ptr<Reservation> places[2];
    for (unsigned i = 0; i < 2; ++i) {
      Batch& batch = batches[round + i] = plain_batch({1000, 24}, 10 * round + i);
      places[i] = reserved(prefetcher, epoch, batch.layout->packed_bytes() + 300 * i);
      std::memcpy(places[i]->data(), batch.in[0].data(), 1000);
    }
    for (unsigned i = 0; i < 2; ++i) {
      const Batch& batch = batches[round + i];
      EXPECT(places[i]->commit(batch.layout, {places[i]->data(), batch.in[1].data()}));
    }
    for (unsigned i = 0; i < 2; ++i) {
      EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
      EXPECT_EQ(consumer.take()->wrong(batches[round + i]), -1);
    }
  }
  EXPECT_EQ(prefetcher.ring().stats().copied, uint64_t{6 * 24});
  const Batch pushed = plain_batch({1000, 24}, 3);
  EXPECT(prefetcher.push(epoch, pushed.layout, pushed.addresses(), kForever) == WaitStatus::kOk);
  EXPECT_EQ(prefetcher.ring().stats().copied, uint64_t{6 * 24 + 1024});
}

TEST(a_large_plain_leaf_goes_straight_to_its_output) {
  constexpr size_t kLarge = BatchLayout::kDirectBytes;
  std::vector<std::string> calls;  // of the prefetch thread; read once it has ended
  HookedBackend backend;
  backend.set_before([&](const char* call) { calls.emplace_back(call); });
  const NormalizeSpec spec =
      make_spec(2, 9, 7, 3, Layout::kNhwc, Layout::kNchw, FloatType::kBFloat16);
  const Expected expected(spec);
  Batch batch = plain_batch({kLarge - 1, 24, kLarge, kLarge + 1, 0, 7, 5}, 1);
  std::vector<BatchLayout::Leaf> leaves;
  for (const Bytes& leaf : batch.in) leaves.push_back(BatchLayout::Leaf{leaf.size(), {}});
  leaves[5] = BatchLayout::Leaf{spec.in_bytes(), spec};
  batch.in[5] = expected.in;
  batch.out[5] = expected.out;
  batch.layout = std::make_shared<const BatchLayout>(std::move(leaves));
  EXPECT_EQ(batch.layout->staging_bytes(), kLarge + 4 * BatchLayout::kAlignment);
  const Memory memory(backend, *batch.layout);
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  prefetcher.give_credit(0, batch.layout, memory.outputs(), memory.staging(), 0);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.deliver(ticket, 0);
  EXPECT_EQ(memory.wrong(batch), -1);
  prefetcher.close();
  const auto made = [&](const char* call) { return std::count(calls.begin(), calls.end(), call); };
  EXPECT_EQ(made("copy_h2d"), 4);  // two direct leaves, and what lies before and behind them
  EXPECT_EQ(made("copy_d2d"), 3);
  EXPECT_EQ(made("normalize"), 1);
}

TEST(a_reservation_is_committed_once_and_only_what_fits) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({8, 8}, 1);
  const auto place = reserved(prefetcher, epoch, 256);
  EXPECT_THROW(place->commit(batch.layout, batch.addresses()), InvalidArgument, "reserved for 256");
  EXPECT_THROW(place->commit(batch.layout, {nullptr}), InvalidArgument, "2 leaves");
  EXPECT_THROW(place->commit(nullptr, {}), InvalidArgument, "layout");
  EXPECT(place->commit(EntryKind::kError));
  EXPECT_THROW(place->commit(EntryKind::kError), InvalidArgument, "committed already");
  EXPECT_THROW(place->commit(batch.layout, batch.addresses()), InvalidArgument,
               "committed already");
}

TEST(a_reservation_outlives_its_prefetcher) {
  HostBackend backend;
  auto prefetcher = std::make_unique<Prefetcher>(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher->ring().open_epoch().number;
  const Batch batch = plain_batch({100}, 1);
  const auto written = reserved(*prefetcher, epoch, 256);
  auto dropped = reserved(*prefetcher, epoch, 256);
  prefetcher->close();
  prefetcher.reset();
  std::memset(written->data(), 1, 256);
  EXPECT(!written->commit(batch.layout, batch.addresses()));
  std::memset(dropped->data(), 1, 256);
  dropped.reset();
}

TEST(a_reservation_that_is_dropped_gives_the_slot_back) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  auto place = reserved(prefetcher, epoch, 8);
  std::shared_ptr<Reservation> other;
  EXPECT(prefetcher.reserve(epoch, 8, kNow, &other) == WaitStatus::kTimeout);
  place.reset();
  place = reserved(prefetcher, epoch, 8);
  prefetcher.cancel({0});
  const uint64_t next = prefetcher.ring().open_epoch().number;
  EXPECT(prefetcher.reserve(next, 8, kNow, &other) == WaitStatus::kTimeout);
  EXPECT(prefetcher.reserve(epoch, 8, kNow, &other) == WaitStatus::kOver);
  place.reset();
  EXPECT(reserved(prefetcher, next, 8) != nullptr);
}

TEST(a_full_ring_times_out_the_only_thread) {
  HostBackend backend;
  Prefetcher prefetcher(backend, 0, 1, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({8}, 1);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kTimeout);
}

TEST(wrong_arguments_are_refused) {
  HostBackendOptions options;
  options.devices = 2;
  HostBackend backend(options);
  EXPECT_THROW(Prefetcher(backend, 2, 1, kLimit), InvalidArgument, "host:2 does not exist");
  EXPECT_THROW(Prefetcher(backend, -1, 1, kLimit), InvalidArgument, "host:-1");
  EXPECT_THROW(Prefetcher(backend, 1, 0, kLimit), InvalidArgument, "depth");
  Prefetcher prefetcher(backend, 1, 1, 600);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({8, 8}, 1);
  EXPECT_THROW(prefetcher.push(epoch, batch.layout, {nullptr}, kNow), InvalidArgument, "2 leaves");
  EXPECT_THROW(prefetcher.push(epoch, nullptr, {}, kNow), InvalidArgument, "layout");
  EXPECT_THROW(prefetcher.give_credit(1, batch.layout, {nullptr, nullptr}, nullptr, 0),
               InvalidArgument, "batch 1");
  EXPECT_THROW(prefetcher.give_credit(0, batch.layout, {nullptr}, &prefetcher, 0), InvalidArgument,
               "one output per leaf");
  EXPECT_THROW(prefetcher.give_credit(0, nullptr, {}, nullptr, 0), InvalidArgument, "layout");
  EXPECT_THROW(prefetcher.give_credit(0, batch.layout, {nullptr, nullptr}, nullptr, 77),
               InvalidArgument, "handle");
  const Batch large = plain_batch({1000}, 1);
  EXPECT_THROW(prefetcher.push(epoch, large.layout, large.addresses(), kNow), InvalidArgument,
               "600");
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kNow) == WaitStatus::kOk);
}

TEST(the_prefetch_thread_allocates_nothing_in_steady_state) {
  HookedBackend backend;
  Prefetcher prefetcher(backend, 0, 3, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const NormalizeSpec spec =
      make_spec(2, 4, 4, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16);
  const Expected expected(spec);
  Batch batch = plain_batch({spec.in_bytes(), 16}, 1);
  batch.in[0] = expected.in;
  batch.out[0] = expected.out;
  batch.layout = std::make_shared<const BatchLayout>(std::vector<BatchLayout::Leaf>{
      BatchLayout::Leaf{spec.in_bytes(), spec, 0}, BatchLayout::Leaf{16, {}, 0}});
  Consumer consumer(backend, prefetcher, 0);
  std::map<uint64_t, Batch> batches;
  uint64_t before = 0;
  for (uint64_t seq = 0; seq < 60; ++seq) {
    if (seq == 10) before = g_prefetch_allocations;
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOk);
    batches[seq] = batch;
    EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
    EXPECT_EQ(consumer.take()->wrong(batch), -1);
  }
  EXPECT_EQ(g_prefetch_allocations - before, uint64_t{0});
}

TEST(allocations_of_the_prefetch_thread_are_counted) {
  // Or the test above would prove nothing.
  const uint64_t before = g_prefetch_allocations;
  Thread thread("fl-prefetch", [] {
    char* volatile memory = new char[100];  // volatile, or the pair may be left out
    delete[] memory;
  });
  thread.join();
  EXPECT(g_prefetch_allocations > before);
}

TEST(memory_that_cannot_be_pinned_serves_and_is_told) {
  HostBackendOptions options;
  options.fail_pinning = true;
  HostBackend backend(options);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  EXPECT(prefetcher.ring().stats().pinned);
  std::map<uint64_t, Batch> batches;
  batches[0] = plain_batch({8, 9}, 1);
  EXPECT(prefetcher.push(epoch, batches[0].layout, batches[0].addresses(), kNow) ==
         WaitStatus::kOk);
  EXPECT(!prefetcher.ring().stats().pinned);
  EXPECT(prefetcher.ring().stats().why_not_pinned.find("pinning") != std::string::npos);
  Consumer consumer(backend, prefetcher, 0);
  EXPECT(consumer.next(batches, 0) == Arrival::kBatch);
  EXPECT_EQ(consumer.take()->wrong(batches[0]), -1);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
