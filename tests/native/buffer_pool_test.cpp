// Host memory that comes back: when it is used again, how much is kept, and which thread may give
// it back.

#include "pipeline/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <vector>

#include "actor.h"
#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

using Buffer = BufferPool::Buffer;

constexpr size_t kMega = size_t{1} << 20;

TEST(a_block_that_came_back_is_taken_again) {
  const auto pool = BufferPool::create();
  Buffer* first = pool->allocate(kMega);
  void* const address = first->data();
  EXPECT(first->bytes() >= kMega);
  EXPECT(reinterpret_cast<uintptr_t>(address) % 4096 == 0);
  std::memset(address, 1, kMega);
  BufferPool::deallocate(first);
  for (int i = 0; i < 10; ++i) {
    Buffer* again = pool->allocate(kMega);
    EXPECT(again->data() == address);
    BufferPool::deallocate(again);
  }
  const BufferPool::Stats stats = pool->stats();
  EXPECT_EQ(stats.made, uint64_t{1});
  EXPECT_EQ(stats.recycled, uint64_t{10});
  EXPECT_EQ(stats.free, size_t{1});
  EXPECT_EQ(stats.in_use, size_t{0});
  EXPECT_EQ(stats.bytes, kMega);
}

TEST(the_warmest_block_is_taken_first) {
  const auto pool = BufferPool::create();
  Buffer* first = pool->allocate(kMega);
  Buffer* second = pool->allocate(kMega);
  void* const warm = first->data();
  BufferPool::deallocate(second);
  BufferPool::deallocate(first);
  Buffer* taken = pool->allocate(kMega);
  EXPECT(taken->data() == warm);
  BufferPool::deallocate(taken);
}

TEST(a_keeper_makes_the_pool_grow_and_lets_it_shrink) {
  const auto pool = BufferPool::create();
  std::vector<Buffer*> kept;
  std::set<void*> addresses;
  for (int i = 0; i < 20; ++i) {
    kept.push_back(pool->allocate(kMega));
    std::memset(kept.back()->data(), i, kMega);
    addresses.insert(kept.back()->data());
  }
  EXPECT_EQ(addresses.size(), size_t{20});
  EXPECT_EQ(pool->stats().in_use, size_t{20});
  EXPECT_EQ(pool->stats().bytes, 20 * kMega);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(int{static_cast<unsigned char*>(kept[static_cast<size_t>(i)]->data())[kMega - 1]}, i);
  }
  for (Buffer* buffer : kept) BufferPool::deallocate(buffer);
  const BufferPool::Stats stats = pool->stats();
  EXPECT_EQ(stats.free, BufferPool::kKept);
  EXPECT_EQ(stats.in_use, size_t{0});
  EXPECT_EQ(stats.bytes, BufferPool::kKept * kMega);
}

/// Whether a block of `made` bytes serves for `wanted`.
bool serves(size_t made, size_t wanted) {
  const auto pool = BufferPool::create();
  BufferPool::deallocate(pool->allocate(made));
  Buffer* taken = pool->allocate(wanted);
  EXPECT(taken->bytes() >= wanted);
  BufferPool::deallocate(taken);
  return pool->stats().recycled == 1;
}

TEST(as_many_come_back_as_are_to_be_kept) {
  const auto pool = BufferPool::create();
  pool->keep(6);
  pool->keep(2);  // never fewer
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<std::byte>> batches;
    for (int i = 0; i < 7; ++i) batches.push_back(pool->share(kMega));
  }
  const BufferPool::Stats stats = pool->stats();
  EXPECT_EQ(stats.free, 6u);
  EXPECT_EQ(stats.made, uint64_t{7 + 1 + 1});
  EXPECT_EQ(stats.bytes, 6 * kMega);
}

TEST(many_small_blocks_are_kept_up_to_so_many_bytes) {
  const auto pool = BufferPool::create();
  pool->keep_small(10 * kMega);
  const auto free_after = [&](size_t count, size_t bytes) {
    std::vector<Buffer*> taken;
    for (size_t i = 0; i < count; ++i) taken.push_back(pool->allocate(bytes));
    for (Buffer* buffer : taken) BufferPool::deallocate(buffer);
    return pool->stats();
  };
  EXPECT_EQ(free_after(9, kMega).free, 9u);
  EXPECT_EQ(free_after(20, kMega).free, 10u);
  EXPECT_EQ(free_after(9, kMega).made, 20u);  // of those that are kept
  // A large one takes the place of as many as it needs.
  EXPECT_EQ(free_after(1, 5 * kMega).free, 6u);
  EXPECT_EQ(pool->stats().bytes, 10 * kMega);
  EXPECT_EQ(free_after(6, 50 * kMega).free, BufferPool::kKept);
  EXPECT_EQ(free_after(BufferPool::kMostSmall + 9, 100).free, BufferPool::kMostSmall);
}

TEST(blocks_up_to_twice_as_large_serve) {
  EXPECT(serves(kMega, kMega));
  EXPECT(serves(kMega, kMega - 1));
  EXPECT(serves(kMega, kMega / 2));
  EXPECT(!serves(kMega, kMega / 2 - 1));
  EXPECT(!serves(kMega, kMega / 100));
  EXPECT(!serves(kMega, kMega + 1));
}

TEST(small_blocks_serve_for_anything_small) {
  // A page is always more than twice of a few bytes.
  EXPECT(serves(0, 0));
  EXPECT(serves(1, 1));
  EXPECT(serves(100, 7));
  EXPECT(serves(30000, 1));
  EXPECT(serves(4096, 4096));
  EXPECT(!serves(4096, 4097));
}

TEST(the_pool_may_go_before_its_buffers) {
  auto pool = BufferPool::create();
  const std::weak_ptr<BufferPool> seen = pool;
  std::vector<Buffer*> kept;
  for (size_t i = 0; i < 6; ++i) kept.push_back(pool->allocate(kMega));
  pool.reset();
  EXPECT(!seen.expired());
  std::memset(kept[0]->data(), 1, kMega);
  for (Buffer* buffer : kept) BufferPool::deallocate(buffer);
  EXPECT(seen.expired());
}

TEST(any_thread_may_deallocate) {
  const auto pool = BufferPool::create();
  constexpr size_t kThreads = 4;
  // Each thread takes, marks and hands over to the next, which looks at the mark and gives back.
  std::vector<std::atomic<Buffer*>> handed(kThreads);
  std::vector<std::unique_ptr<Actor>> actors;
  std::atomic<int> wrong{0};
  for (size_t me = 0; me < kThreads; ++me) {
    actors.push_back(std::make_unique<Actor>([&, me] {
      for (unsigned char round = 0; round < 100; ++round) {
        Buffer* mine = pool->allocate(50000);
        std::memset(mine->data(), round, 50000);
        if (Buffer* before = handed[me].exchange(mine)) BufferPool::deallocate(before);
        if (Buffer* theirs = handed[(me + 1) % kThreads].exchange(nullptr)) {
          const auto* bytes = static_cast<unsigned char*>(theirs->data());
          // No other thread wrote there: no block is in two hands.
          if (std::any_of(bytes, bytes + 50000, [=](auto b) { return b != bytes[0]; })) ++wrong;
          BufferPool::deallocate(theirs);
        }
      }
    }));
  }
  for (auto& actor : actors) actor->join();
  for (auto& left : handed) {
    if (Buffer* buffer = left.exchange(nullptr)) BufferPool::deallocate(buffer);
  }
  EXPECT_EQ(wrong.load(), 0);
  const BufferPool::Stats stats = pool->stats();
  EXPECT_EQ(stats.in_use, size_t{0});
  EXPECT_EQ(stats.made + stats.recycled, uint64_t{kThreads * 100});
  EXPECT(stats.free <= BufferPool::kKept);
}

TEST(a_forked_child_may_deallocate_and_the_parent_notices_nothing) {
  const auto pool = BufferPool::create();
  Buffer* kept = pool->allocate(kMega);
  std::memset(kept->data(), 7, kMega);
  const ChildEnd end = in_forked_child([&] {
    std::memset(kept->data(), 9, kMega);  // a copy: what users hold is inherited
    BufferPool::deallocate(kept);
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(int{static_cast<char*>(kept->data())[kMega - 1]}, 7);
  EXPECT_EQ(pool->stats().in_use, size_t{1});
  BufferPool::deallocate(kept);
  EXPECT_EQ(pool->stats().free, size_t{1});
}

TEST(a_forked_child_may_deallocate_though_its_mutex_is_held) {
  // The mutex is held in a good part of these forks; no order can be forced inside of the pool.
  const auto pool = BufferPool::create();
  Buffer* kept = pool->allocate(100);
  std::atomic<bool> stop{false};
  Actor busy(
      [&] {
        while (!stop) pool->stats();
      },
      [&] { stop = true; });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_forked_child([&] { BufferPool::deallocate(kept); }).exit_code, 0);
  }
  stop = true;
  busy.join();
  BufferPool::deallocate(kept);
}

TEST(too_much_is_refused_and_costs_nothing) {
  const auto pool = BufferPool::create();
  bool refused = false;
  try {
    pool->allocate(SIZE_MAX - 5000);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  EXPECT(refused);
  EXPECT_EQ(pool->stats().in_use, size_t{0});
  EXPECT_EQ(pool->stats().bytes, size_t{0});
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
