// Ring and prefetcher over every implementation of the backend. The order of events is forced in
// the other prefetcher tests, on the twin; here it is the device that is new, so what they share is
// real device memory, looked at through copies alone, poisoned before and fenced on both sides.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "prefetcher_test.h"

namespace fastloader::testing {
namespace {

constexpr uint8_t kPoison = 0xA5;
constexpr size_t kFence = 256;  // keeps the alignment that device memory has

/// Device memory for one batch. Made on `stream`, to which the poison is written.
class Fenced {
 public:
  Fenced(Backend& backend, Stream& stream, const BatchLayout& layout) {
    for (const BatchLayout::Leaf& leaf : layout.leaves()) add(backend, stream, leaf.out_bytes());
    add(backend, stream, layout.staging_bytes());
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() {
    // As in Memory: a failing test must not free what is still being written.
    if (std::uncaught_exceptions() == 0) return;
    for (auto& block : blocks_) (void)block.release();
  }

  std::vector<void*> outputs() const {
    std::vector<void*> all;
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) all.push_back(inside(i));
    return all;
  }
  void* staging() const { return inside(blocks_.size() - 1); }

  /// What is not as expected, empty if nothing. The caller has waited for the work.
  std::string wrong(Stream& stream, const Batch& batch) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Bytes all = download(stream, blocks_[i]->data(), blocks_[i]->bytes());
      const auto begin = all.begin() + kFence;
      const auto end = all.end() - kFence;
      const auto poisoned = [](uint8_t byte) { return byte == kPoison; };
      const std::string name = i + 1 < blocks_.size() ? "leaf " + std::to_string(i) : "staging";
      if (!std::all_of(all.begin(), begin, poisoned)) return name + ": written before it";
      if (!std::all_of(end, all.end(), poisoned)) return name + ": written beyond it";
      if (i < batch.out.size() && !std::equal(begin, end, batch.out[i].begin())) return name;
    }
    return {};
  }

  bool untouched(Stream& stream) const {
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
      return download(stream, block->data(), block->bytes()) == Bytes(block->bytes(), kPoison);
    });
  }

 private:
  void add(Backend& backend, Stream& stream, size_t bytes) {
    blocks_.push_back(backend.allocate_device(0, bytes + 2 * kFence));
    upload(stream, blocks_.back()->data(), Bytes(bytes + 2 * kFence, kPoison));
  }
  void* inside(size_t i) const { return static_cast<uint8_t*>(blocks_[i]->data()) + kFence; }

  std::vector<std::unique_ptr<DeviceBlock>> blocks_;  // one per leaf, then the staging buffer
};

using FencedPtr = std::unique_ptr<Fenced>;

/// One epoch of `batches`, pushed by a thread of its own. Batch n is delivered to, and memory for
/// later ones made on, the stream that `choose(n)` names; `stop_after` of them are taken.
template <typename Choose>
void run_epoch(Backend& backend, Prefetcher& prefetcher, const std::vector<Batch>& batches,
               const std::vector<std::unique_ptr<Stream>>& streams, Choose choose,
               size_t stop_after) {
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  Actor producer(
      [&] {
        for (const Batch& batch : batches) {
          if (prefetcher.push(epoch.number, batch.layout, batch.addresses(), kForever) !=
              WaitStatus::kOk) {
            return;
          }
        }
        prefetcher.ring().put(epoch.number, EntryKind::kEnd, kForever);
      },
      [&] { prefetcher.close(); });
  std::map<uint64_t, FencedPtr> offered;
  std::vector<FencedPtr> delivered;
  std::vector<uintptr_t> used;
  const auto top_up = [&](Stream& stream) {
    for (const Ring::Uncredited& missing : prefetcher.ring().uncredited(false)) {
      const SharedLayout layout = batches[missing.seq - epoch.first_seq].layout;
      auto memory = std::make_unique<Fenced>(backend, stream, *layout);
      prefetcher.give_credit(missing.seq, layout, memory->outputs(), memory->staging(),
                             stream.handle());
      offered[missing.seq] = std::move(memory);
      used.push_back(stream.handle());
    }
  };
  while (delivered.size() < stop_after) {
    Stream& stream = *streams[choose(delivered.size())];
    Ticket ticket;
    const Arrival arrival = prefetcher.ring().wait_arrival(kForever, &ticket);
    if (arrival == Arrival::kNeedsCredit) {
      top_up(stream);
      continue;
    }
    EXPECT(arrival == (delivered.size() == batches.size() ? Arrival::kEnd : Arrival::kBatch));
    if (arrival == Arrival::kEnd) break;
    prefetcher.deliver(ticket, stream.handle());
    const uint64_t seq = epoch.first_seq + delivered.size();
    delivered.push_back(std::move(offered.at(seq)));
    offered.erase(seq);
    top_up(stream);
  }
  prefetcher.cancel(used);
  producer.join();
  for (const auto& stream : streams) stream->synchronize();
  for (size_t i = 0; i < delivered.size(); ++i) {
    const std::string wrong = delivered[i]->wrong(*streams[0], batches[i]);
    if (!wrong.empty()) throw Failure{"batch " + std::to_string(i) + ", " + wrong};
  }
}

std::vector<std::unique_ptr<Stream>> consumer_streams(Backend& backend) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(backend.wrap_external(0, 0));
  for (int i = 0; i < 2; ++i) streams.push_back(backend.create_stream(0));
  return streams;
}

BACKEND_TEST(batches_of_every_kind_arrive_on_every_stream) {
  std::mt19937 random(17);
  const auto streams = consumer_streams(backend);
  for (size_t depth = 1; depth <= 3; ++depth) {
    Prefetcher prefetcher(backend, 0, depth, kLimit);
    for (size_t way = 0; way <= streams.size(); ++way) {  // the last one: another at each batch
      std::vector<Batch> batches;
      for (int i = 0; i < 12; ++i) batches.push_back(random_batch(random));
      run_epoch(
          backend, prefetcher, batches, streams,
          [&](size_t batch) { return way < streams.size() ? way : batch % streams.size(); },
          batches.size() + 1);
    }
  }
}

BACKEND_TEST(slots_grow_under_a_running_epoch) {
  const auto streams = consumer_streams(backend);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  std::vector<Batch> batches;
  for (size_t bytes = 100; bytes < size_t{1} << 20; bytes = bytes * 5 / 2) {
    batches.push_back(plain_batch({bytes, bytes / 3, 1}, static_cast<unsigned>(bytes)));
  }
  run_epoch(
      backend, prefetcher, batches, streams, [](size_t) { return size_t{1}; }, batches.size() + 1);
  const Ring::Stats stats = prefetcher.ring().stats();
  EXPECT(stats.slot_growths > 0);
  EXPECT_EQ(stats.pinned, stats.why_not_pinned.empty());
}

BACKEND_TEST(epochs_that_end_early_leave_the_next_one_whole) {
  std::mt19937 random(23);
  const auto streams = consumer_streams(backend);
  Prefetcher prefetcher(backend, 0, 3, kLimit);
  for (size_t taken = 0; taken < 9; ++taken) {
    std::vector<Batch> batches;
    for (int i = 0; i < 8; ++i) batches.push_back(random_batch(random));
    run_epoch(
        backend, prefetcher, batches, streams, [&](size_t batch) { return (batch + taken) % 3; },
        taken);
  }
}

BACKEND_TEST(two_prefetchers_work_side_by_side) {
  const auto streams = consumer_streams(backend);
  std::vector<std::unique_ptr<Actor>> consumers;
  for (size_t number = 1; number <= 2; ++number) {
    consumers.push_back(std::make_unique<Actor>([&backend, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      std::vector<std::unique_ptr<Stream>> mine;
      mine.push_back(backend.create_stream(0));
      Prefetcher prefetcher(backend, 0, 2, kLimit);
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::vector<Batch> batches;
        for (int i = 0; i < 10; ++i) batches.push_back(random_batch(random));
        run_epoch(
            backend, prefetcher, batches, mine, [](size_t) { return size_t{0}; },
            batches.size() + 1);
      }
    }));
  }
  for (const auto& consumer : consumers) consumer->join();
}

BACKEND_TEST(memory_of_a_cancelled_batch_goes_back_behind_the_late_copy) {
  // Two credits of two streams. Only the held one is waited for by the copy stream; the memory of
  // the other may be used again by its own stream, which nothing holds, at once.
  const auto held = backend.create_stream(0);
  const auto free = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({1000}, 1);
  const Fenced first(backend, *held, *batch.layout);
  const Fenced second(backend, *free, *batch.layout);
  const PinnedBytes poison(backend, 1000);
  poison.fill(Bytes(1000, kPoison));
  Gate gate;
  gate.close(*held);
  prefetcher.give_credit(0, batch.layout, first.outputs(), nullptr, held->handle());
  prefetcher.give_credit(1, batch.layout, second.outputs(), nullptr, free->handle());
  for (int i = 0; i < 2; ++i) {
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOk);
  }
  Ticket ticket;
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.deliver(ticket, held->handle());
  EXPECT(prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch);
  prefetcher.cancel({held->handle(), free->handle()});
  free->copy_h2d_async(second.outputs()[0], poison.data(), poison.size);
  gate.open();
  held->synchronize();
  free->synchronize();
  EXPECT_EQ(first.wrong(*held, batch), std::string());
  EXPECT(second.untouched(*free));
}

BACKEND_TEST(a_refused_batch_is_told_and_the_next_prefetcher_works) {
  const auto stream = backend.create_stream(0);
  std::mt19937 random(5);
  Batch batch;
  BatchLayout::Leaf leaf;
  const NormalizeSpec spec = make_spec(2, 5, 7, 3, Layout::kNchw, Layout::kNchw, kTypes[0]);
  Expected expected(spec);
  leaf.bytes = spec.in_bytes();
  leaf.normalize = spec;
  batch.in.push_back(expected.in);
  batch.out.push_back(expected.out);
  batch.layout = std::make_shared<const BatchLayout>(std::vector<BatchLayout::Leaf>{leaf});
  {
    Prefetcher prefetcher(backend, 0, 2, kLimit);
    const uint64_t epoch = prefetcher.ring().open_epoch().number;
    const Fenced memory(backend, *stream, *batch.layout);
    void* crooked = static_cast<uint8_t*>(memory.outputs()[0]) + 4;
    prefetcher.give_credit(0, batch.layout, {crooked}, memory.staging(), stream->handle());
    EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOk);
    const auto wait = [&] {
      Ticket ticket;
      for (;;) {
        if (prefetcher.ring().wait_arrival(kForever, &ticket) == Arrival::kBatch) return;
      }
    };
    EXPECT_THROW(wait(), BackendError, "16");
    prefetcher.cancel({stream->handle()});
    prefetcher.close();
  }
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(backend.create_stream(0));
  run_epoch(backend, prefetcher, {batch, batch}, streams, [](size_t) { return size_t{0}; }, 3);
}

TEST(cuda_a_copy_that_the_device_refuses_is_told) {
  Backend& backend = open_or_skip("cuda");
  const auto stream = backend.create_stream(0);
  Prefetcher prefetcher(backend, 0, 2, kLimit);
  const uint64_t epoch = prefetcher.ring().open_epoch().number;
  const Batch batch = plain_batch({1000}, 1);
  prefetcher.give_credit(0, batch.layout, {nullptr}, nullptr, stream->handle());
  EXPECT(prefetcher.push(epoch, batch.layout, batch.addresses(), kForever) == WaitStatus::kOk);
  Ticket ticket;
  EXPECT_THROW(prefetcher.ring().wait_arrival(kForever, &ticket), BackendError, "cudaMemcpyAsync");
  prefetcher.cancel({stream->handle()});
  stream->synchronize();  // the consumer's own stream is well
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
