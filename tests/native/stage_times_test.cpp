// What the stages count: decode threads for a quota, the ring for its consumer, the device for a
// copy.

#include "pipeline/stage_times.h"

#include <memory>
#include <vector>

#include "decode_pool_test.h"
#include "pipeline/gather_pool.h"
#include "source/delayed_source.h"

namespace {

using namespace fastloader;
namespace t = fastloader::testing;

TEST(a_quota_counts_its_own_pictures) {
  DecodePool pool;
  const t::Loader loader(40, 2);
  const t::Loader other(3, 1);
  pool.grow(2);
  t::expect_done(pool, t::submitted(pool, loader.batch(t::range(0, 40))));
  t::expect_done(pool, t::submitted(pool, other.batch(t::range(0, 3))));
  uint64_t bytes = 0;
  for (const auto& file : t::small_pictures(40)) bytes += file.size();
  const StageTimes times = pool.times(*loader.quota);
  EXPECT_EQ(times.pictures, uint64_t{40});
  EXPECT_EQ(times.bytes, bytes);
  EXPECT(times.read > 0 && times.decode > 0);
  // Each thread looks at the first of its pictures.
  EXPECT(times.looked_at > 0 && times.looked_at <= times.decode);
  EXPECT(times.resize > 0 && times.resize <= times.looked_at);
  EXPECT_EQ(pool.times(*other.quota).pictures, uint64_t{3});
}

TEST(a_picture_that_fails_counts_as_far_as_it_came) {
  DecodePool pool;
  const t::Loader loader(2, 1);
  loader.source->instead(0, [] { throw Error("out of luck"); });
  pool.grow(1);
  t::expect_done(pool, t::submitted(pool, loader.batch({0, 1})));
  const StageTimes times = pool.times(*loader.quota);
  EXPECT_EQ(times.pictures, uint64_t{2});
  EXPECT(times.decode > 0);
}

TEST(a_slow_disk_is_time_at_read) {
  DecodePool pool;
  const t::Loader loader(4, 1);
  const auto delay = std::chrono::milliseconds(2);
  const auto job = t::job_of(std::make_shared<DelayedSource>(loader.source, delay));
  const auto batch =
      std::make_shared<DecodeBatch>(job, loader.quota, t::range(0, 4), std::vector<uint64_t>{7},
                                    [&](size_t bytes) { return loader.memory->share(bytes); });
  pool.grow(1);
  EXPECT_EQ(job->source->name(3), loader.source->name(3));
  t::expect_done(pool, t::submitted(pool, batch));
  EXPECT(pool.times(*loader.quota).read >= 4 * std::chrono::nanoseconds(delay).count());
}

TEST(done_says_whether_a_wait_would_return) {
  DecodePool pool;
  const t::Loader loader(2, 1);
  loader.source->hold({1});
  pool.grow(1);
  const t::Batch batch = t::submitted(pool, loader.batch({0, 1}));
  loader.source->wait_begun(2);
  EXPECT(!pool.done(*batch));
  loader.source->open_all();
  t::expect_done(pool, batch);
  EXPECT(pool.done(*batch));
}

TEST(a_gather_counts_its_copies) {
  GatherPool pool;
  std::vector<std::byte> from(1 << 20, std::byte{7});
  std::vector<std::byte> to(1 << 20);
  GatherLeaf leaf;
  leaf.source = from.data();
  leaf.row_bytes = leaf.row_step = 1 << 16;
  leaf.destination = to.data();
  GatherBatch batch({leaf}, {t::range(0, 16)});
  EXPECT_EQ(pool.nanoseconds(batch), int64_t{0});
  EXPECT(pool.wait(batch, GatherPool::Clock::now() + std::chrono::seconds(60)));
  EXPECT(pool.nanoseconds(batch) > 0);
}

}  // namespace

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
