// Memory that the device reads where it lies: blocks, and who holds them.

#include "pipeline/pinned_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "actor.h"
#include "backend/host/host_backend.h"
#include "base/error.h"
#include "check.h"
#include "child_process.h"

namespace fastloader::testing {
namespace {

constexpr size_t kPage = 4096;

std::shared_ptr<PinnedPool> pool_of(HostBackend& backend) {
  return PinnedPool::create([&backend](size_t bytes) { return backend.allocate_host(0, bytes); });
}

TEST(a_block_comes_back_when_its_last_holder_lets_go) {
  HostBackend backend;
  const auto pool = pool_of(backend);
  auto first = pool->share(2 * kPage);
  const std::byte* const begin = first.get();
  auto second = pool->holder(begin + 100, 2 * kPage - 100);
  EXPECT_EQ(second.get() - begin, 100);
  first.reset();
  EXPECT_EQ(pool->stats().in_use, 1u);
  EXPECT(pool->share(2 * kPage).get() != begin);
  second.reset();
  EXPECT_EQ(pool->stats().in_use, 0u);
  EXPECT_EQ(pool->stats().blocks, 2u);
  EXPECT_EQ(pool->stats().bytes, 4 * kPage);
  EXPECT_EQ(pool->holder(begin, 1), nullptr);
}

TEST(bytes_have_a_holder_only_within_a_block) {
  HostBackend backend;
  const auto pool = pool_of(backend);
  const auto block = pool->share(kPage);
  const std::byte outside{};
  EXPECT(pool->holder(block.get(), kPage) != nullptr);
  EXPECT(pool->holder(block.get() + kPage - 1, 1) != nullptr);
  EXPECT_EQ(pool->holder(block.get() + 1, kPage), nullptr);
  EXPECT_EQ(pool->holder(block.get() + kPage, 0), nullptr);
  EXPECT_EQ(pool->holder(block.get() - 1, 2), nullptr);
  EXPECT_EQ(pool->holder(&outside, 1), nullptr);
  EXPECT_EQ(pool->holder(nullptr, 0), nullptr);
  EXPECT_EQ(pool->stats().in_use, 1u);
}

TEST(the_smallest_block_that_is_large_enough_serves_or_gives_way) {
  HostBackend backend;
  const auto pool = pool_of(backend);
  auto small = pool->share(kPage);
  auto middle = pool->share(4 * kPage);
  auto large = pool->share(9 * kPage);
  const std::byte* const second = middle.get();
  small = middle = large = nullptr;
  EXPECT_EQ(pool->share(2 * kPage).get(), second);
  const auto larger = pool->share(16 * kPage);
  EXPECT_EQ(pool->stats().blocks, 3u);
  EXPECT_EQ(pool->stats().bytes, (4 + 9 + 16) * kPage);
  // Sizes that vary need no more blocks than are in use at a time.
  for (size_t pages = 1; pages < 40; ++pages) pool->share(pages * kPage);
  EXPECT_EQ(pool->stats().blocks, 3u);
}

TEST(a_block_that_cannot_be_made_costs_nothing) {
  const auto pool =
      PinnedPool::create([](size_t) -> std::unique_ptr<HostBlock> { throw BackendError("none"); });
  EXPECT_THROW(pool->share(1), BackendError, "none");
  EXPECT_EQ(pool->stats().blocks, 0u);
}

TEST(holders_keep_the_pool_and_no_pool_stays) {
  HostBackend backend;
  auto pool = pool_of(backend);
  const std::weak_ptr<PinnedPool> seen = pool;
  auto held = pool->share(kPage);
  auto again = pool->holder(held.get(), 1);
  pool.reset();
  held.reset();
  EXPECT(!seen.expired());
  std::memset(again.get(), 1, kPage);
  again.reset();
  EXPECT(seen.expired());
}

TEST(no_block_is_in_two_hands) {
  HostBackend backend;
  const auto pool = pool_of(backend);
  std::atomic<int> wrong{0};
  std::atomic<const std::byte*> shown{nullptr};
  std::atomic<bool> stop{false};
  // Takes hold of what may be let go at the same moment.
  Actor looking(
      [&] {
        while (!stop) {
          const auto held = pool->holder(shown.load(), 8);
          if (held != nullptr && held.get() != shown.load()) continue;
        }
      },
      [&] { stop = true; });
  std::vector<std::unique_ptr<Actor>> actors;
  for (int me = 1; me <= 3; ++me) {
    actors.push_back(std::make_unique<Actor>([&, me] {
      for (int round = 0; round < 300; ++round) {
        auto mine = pool->share(kPage * static_cast<size_t>(1 + round % 3));
        shown = mine.get();
        std::memset(mine.get(), me, kPage);
        auto second = pool->holder(mine.get(), kPage);
        mine.reset();
        if (std::any_of(second.get(), second.get() + kPage,
                        [me](std::byte each) { return each != std::byte(me); })) {
          ++wrong;
        }
      }
    }));
  }
  for (auto& each : actors) each->join();
  stop = true;
  looking.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pool->stats().in_use, 0u);
  EXPECT(pool->stats().blocks <= 4u);  // the one that looks may be a block's last holder
}

TEST(a_forked_child_lets_go_though_the_mutex_is_held) {
  // It is held in a good part of these forks; no order can be forced inside of the pool.
  HostBackend backend;
  const auto pool = pool_of(backend);
  auto held = pool->share(kPage);
  std::atomic<bool> stop{false};
  Actor busy(
      [&] {
        while (!stop) pool->stats();
      },
      [&] { stop = true; });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_forked_child([&] { held.reset(); }).exit_code, 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(pool->stats().in_use, 1u);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
