#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "consumer.h"
#include "prefetcher_test.h"

namespace fastloader::testing {

constexpr size_t kDepth = 2;

inline Ring::Clock::time_point within_a_minute() {
  return Ring::Clock::now() + std::chrono::minutes(1);
}

/// Takes `count` batches through a prefetcher of its own, in memory that is used in turn, and
/// compares each. `before` is called ahead of the n-th.
inline void run_epoch(
    Backend& backend, int device, const std::vector<Batch>& batches, size_t count,
    const ConsumerStream& stream, const std::function<void(size_t)>& before = [](size_t) {}) {
  std::vector<std::vector<std::unique_ptr<OfferedMemory>>> pool(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    for (size_t n = 0; n < kDepth + 1; ++n) {
      pool[i].push_back(std::make_unique<OfferedMemory>(device, *batches[i].layout));
    }
  }
  Prefetcher prefetcher(backend, device, kDepth, kLimit);
  const Ring::Epoch epoch = prefetcher.ring().open_epoch();
  const auto place = [&](size_t n) {
    const auto& of_batch = pool[n % batches.size()];
    return of_batch[n / batches.size() % of_batch.size()].get();
  };
  const auto push = [&](size_t n) {
    const Batch& batch = batches[n % batches.size()];
    EXPECT(prefetcher.push(epoch.number, batch.layout, batch.addresses(), within_a_minute()) ==
           WaitStatus::kOk);
  };
  for (size_t n = 0; n < kDepth; ++n) push(n);
  for (size_t n = 0; n < count; ++n) {
    before(n);
    Ticket ticket;
    Arrival arrival;
    while ((arrival = prefetcher.ring().wait_arrival(within_a_minute(), &ticket)) ==
           Arrival::kNeedsCredit) {
      for (const Ring::Uncredited& missing : prefetcher.ring().uncredited(false)) {
        const size_t number = missing.seq - epoch.first_seq;
        prefetcher.give_credit(missing.seq, batches[number % batches.size()].layout,
                               place(number)->outputs(), place(number)->staging(), stream.handle());
      }
    }
    EXPECT(arrival == Arrival::kBatch);
    prefetcher.deliver(ticket, stream.handle());
    bool right = true;
    stream.run([&] {
      const Batch& batch = batches[n % batches.size()];
      for (size_t leaf = 0; leaf < batch.out.size(); ++leaf) {
        right = right && place(n)->read(leaf, batch.out[leaf].size()) == batch.out[leaf];
      }
      place(n)->reuse();
    });
    EXPECT(stream.synchronize() == cudaSuccess);
    EXPECT(right);
    push(n + kDepth);
  }
  prefetcher.cancel({stream.handle()});
  prefetcher.close();
}

}  // namespace fastloader::testing
