#include "decode_pool_test.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace fastloader {
namespace {

using namespace testing;

using Set = std::set<uint64_t>;

TEST(threads_steal_samples_so_the_first_batch_is_done_while_the_second_is_worked_on) {
  DecodePool pool;
  const Loader loader(8, 2);
  loader.source->hold({3, 4});
  pool.grow(2);
  const Batch first = submitted(pool, loader.batch(range(0, 4)));
  const Batch second = submitted(pool, loader.batch(range(4, 8)));
  loader.source->wait_begun(5);  // one stands at the last of the first, the other one does not wait
  EXPECT(loader.source->begun_set() == (Set{0, 1, 2, 3, 4}));
  EXPECT(!done(pool, first));
  loader.source->open(3);
  expect_done(pool, first);
  EXPECT(!done(pool, second));
  loader.source->open(4);
  expect_done(pool, second);
}

TEST(all_threads_work_at_one_batch) {
  for (const size_t threads : {1, 2, 3, 8}) {
    DecodePool pool;
    const Loader loader(9, threads);
    loader.source->hold_all();
    pool.grow(threads);
    const Batch batch = submitted(pool, loader.batch(range(0, 9)));
    loader.source->wait_begun(threads);
    loader.source->open_all();
    expect_done(pool, batch);
    EXPECT_EQ(loader.source->most_inside(), threads);
    EXPECT(batch->failures().empty());
  }
}

TEST(batches_are_begun_in_the_order_they_came) {
  DecodePool pool;
  const Loader loader(12, 1);
  loader.source->hold({6});
  pool.grow(1);
  const Batch first = submitted(pool, loader.batch({6, 5, 4}));
  loader.source->wait_begun(1);
  const Batch second = submitted(pool, loader.batch({11, 10, 9, 8}));
  const Batch third = submitted(pool, loader.batch({0, 1, 0}));
  loader.source->open(6);
  for (const Batch& batch : {third, second, first}) expect_done(pool, batch);
  EXPECT(loader.source->begun() == (Indices{6, 5, 4, 11, 10, 9, 8, 0, 1, 0}));
}

TEST(a_quota_is_never_exceeded_and_holds_up_nobody_else) {
  DecodePool pool;
  const Loader two(9, 2);
  const Loader one(9, 1);
  const Loader free(9, 9);
  two.source->hold_all();
  one.source->hold_all();
  pool.grow(4);
  const Batch first = submitted(pool, two.batch(range(0, 6)));
  const Batch second = submitted(pool, one.batch(range(0, 3)));
  two.source->wait_begun(2);
  one.source->wait_begun(1);
  // The fourth thread passes over both: it can only be that one that does these.
  expect_done(pool, submitted(pool, free.batch(range(0, 9))));
  EXPECT_EQ(two.source->begun().size(), 2u);
  EXPECT_EQ(one.source->begun().size(), 1u);
  EXPECT_EQ(free.source->most_inside(), 1u);
  // Room in one quota is room for that loader.
  two.source->open(two.source->begun()[0]);
  two.source->wait_begun(3);
  EXPECT_EQ(one.source->begun().size(), 1u);
  two.source->open_all();
  expect_done(pool, first);
  EXPECT_EQ(one.source->begun().size(), 1u);
  one.source->open_all();
  expect_done(pool, second);
  EXPECT_EQ(two.source->most_inside(), 2u);
  EXPECT_EQ(one.source->most_inside(), 1u);
}

TEST(a_quota_that_grows_wakes_threads_and_one_that_shrinks_lets_them_finish) {
  DecodePool pool;
  const Loader loader(12, 1);
  loader.source->hold_all();
  pool.grow(3);
  const Batch batch = submitted(pool, loader.batch(range(0, 12)));
  loader.source->wait_begun(1);
  pool.set_threads(*loader.quota, 4);  // one more than there are
  EXPECT_EQ(pool.threads(), 4u);
  EXPECT_EQ(pool.threads(*loader.quota), 4u);
  loader.source->wait_begun(4);
  pool.set_threads(*loader.quota, 2);
  // Four threads are at it: two may be done with theirs before one begins another.
  loader.source->open(loader.source->begun()[0]);
  loader.source->open(loader.source->begun()[1]);
  loader.source->open(loader.source->begun()[2]);
  loader.source->wait_begun(5);
  EXPECT_EQ(loader.source->begun().size(), 5u);
  loader.source->open_all();
  expect_done(pool, batch);
  EXPECT_EQ(loader.source->most_inside(), 4u);
  EXPECT_THROW(pool.set_threads(*loader.quota, 0), InvalidArgument, "quota");
}

TEST(a_quota_that_changes_all_the_time_loses_no_wake_up) {
  DecodePool pool;
  const Loader loader(16, 1);
  for (uint64_t i = 0; i < 60; ++i) {
    const Batch batch = submitted(pool, loader.batch(range(0, 1 + i % 9)));
    pool.set_threads(*loader.quota, 1 + i % 5);
    expect_done(pool, batch);
  }
  EXPECT_EQ(pool.threads(), 5u);
}

TEST(quotas_times_and_priority_are_anybodys_to_ask_while_threads_decode) {
  DecodePool pool;
  const Loader one(16, 1);
  const Loader two(16, 2);
  std::atomic<bool> over{false};
  const auto meddle = [&](const Loader& loader) {
    for (uint64_t i = 0; !over; ++i) {
      pool.set_threads(*loader.quota, 1 + i % 4);
      EXPECT(pool.threads(*loader.quota) >= 1u);
      EXPECT(pool.cpu_ns() >= 0);
      pool.times(*loader.quota);
      if (i == 5) pool.lower_priority();
    }
  };
  Actor first([&] { meddle(one); }, [&] { over = true; });
  Actor second([&] { meddle(one); }, [&] { over = true; });  // zip(loader, loader)
  for (uint64_t i = 0; i < 20; ++i) {
    const Batch left = submitted(pool, one.batch(range(0, 16)));
    const Batch right = submitted(pool, two.batch(range(0, 16)));
    if (i % 3 == 0) pool.cancel(*left);  // an epoch that ends early
    if (i % 3 != 0) expect_done(pool, left);
    expect_done(pool, right);
  }
  over = true;
  first.join();
  second.join();
  EXPECT(pool.threads() <= 4u);
}

TEST(threads_that_yield_to_others_are_nicer_and_so_are_later_ones) {
  DecodePool pool;
  const Loader loader(8, 2);
  pool.grow(1);
  pool.lower_priority();
  pool.grow(2);
  loader.source->hold_all();
  const Batch batch = submitted(pool, loader.batch(range(0, 8)));
  loader.source->wait_begun(2);  // both are at work
  loader.source->open_all();
  expect_done(pool, batch);
  const int mine = getpriority(PRIO_PROCESS, 0);
  size_t nicer = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const int thread = std::stoi(entry.path().filename());
    std::ifstream name(entry.path() / "comm");
    std::string text;
    if (!std::getline(name, text) || text != "fl-decode") continue;
    if (getpriority(PRIO_PROCESS, static_cast<id_t>(thread)) == std::min(mine + 5, 19)) ++nicer;
  }
  EXPECT_EQ(nicer, 2u);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), mine);
}

TEST(the_time_on_a_processor_is_counted) {
  DecodePool pool;
  const Loader loader(8, 1);
  EXPECT_EQ(pool.cpu_ns(), 0);
  pool.grow(1);
  expect_done(pool, submitted(pool, loader.batch(range(0, 8))));
  EXPECT(pool.cpu_ns() > 0);
}

TEST(no_wake_up_is_lost_when_quotas_are_full) {
  DecodePool pool;
  const Loader one(16, 1);
  const Loader two(16, 2);
  const Loader three(16, 3);
  pool.grow(8);
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 60; ++i) {
    for (const Loader* loader : {&one, &two, &three}) {
      batches.push_back(submitted(pool, loader->batch(range(i % 13, i % 13 + 1 + i % 3))));
    }
    // Now and then everything sleeps before there is more.
    if (i % 7 == 0) expect_done(pool, batches[batches.size() - 1 - i % 3]);
  }
  for (const Batch& batch : batches) expect_done(pool, batch);
  EXPECT_EQ(one.source->most_inside(), 1u);
  EXPECT(two.source->most_inside() <= 2);
  EXPECT(three.source->most_inside() <= 3);
}

TEST(cancel_waits_for_the_samples_begun_and_begins_no_other) {
  DecodePool pool;
  const Loader loader(8, 2);
  loader.source->hold({0, 1});
  pool.grow(2);
  const Batch batch = submitted(pool, loader.batch(range(0, 8)));
  loader.source->wait_begun(2);
  Actor canceller([&] { pool.cancel(*batch); }, [&] { loader.source->open_all(); });
  canceller.wait_until_asleep();
  const Batch other = submitted(pool, loader.batch({7}));
  loader.source->open(0);
  expect_done(pool, other);  // by the thread that is free again
  EXPECT(!canceller.finished());
  loader.source->open(1);
  canceller.join();
  EXPECT(loader.source->begun_set() == (Set{0, 1, 7}));
  EXPECT(!done(pool, batch));
  pool.cancel(*batch);  // again
}

TEST(stop_waits_for_nobody_and_wakes_who_waits) {
  DecodePool pool;
  const Loader loader(8, 1);
  loader.source->hold({0});
  pool.grow(1);
  const Batch batch = submitted(pool, loader.batch(range(0, 8)));
  loader.source->wait_begun(1);
  Actor waiter(
      [&] {
        EXPECT(pool.wait(*batch, Clock::time_point::max()) == DecodePool::WaitStatus::kCancelled);
      },
      [&] { loader.source->open_all(); });
  waiter.wait_until_asleep();
  pool.stop(*batch);
  waiter.join();
  EXPECT_EQ(loader.source->begun().size(), 1u);  // and it still stands there
  Actor canceller([&] { pool.cancel(*batch); }, [&] { loader.source->open_all(); });
  canceller.wait_until_asleep();
  loader.source->open(0);
  canceller.join();
  EXPECT(loader.source->begun() == (Indices{0}));
  const Batch finished = submitted(pool, loader.batch({1}));
  expect_done(pool, finished);
  pool.stop(*finished);
  expect_done(pool, finished);  // done stays done
}

TEST(scratch_is_counted_and_does_not_grow_with_the_batches) {
  DecodePool pool;
  const Loader loader(16, 1);
  pool.grow(1);
  EXPECT_EQ(pool.scratch_bytes(), 0u);
  expect_done(pool, submitted(pool, loader.batch(range(0, 16))));
  const size_t after_one = pool.scratch_bytes();
  EXPECT(after_one > 0);
  for (int i = 0; i < 20; ++i) expect_done(pool, submitted(pool, loader.batch(range(0, 16))));
  EXPECT_EQ(pool.scratch_bytes(), after_one);
}

TEST(cancel_of_a_batch_nobody_has_begun_waits_for_nobody) {
  DecodePool pool;
  const Loader loader(8, 1);
  loader.source->hold({0});
  pool.grow(1);
  const Batch first = submitted(pool, loader.batch({0}));
  loader.source->wait_begun(1);
  Batch second = submitted(pool, loader.batch({1, 2}));
  const Batch third = submitted(pool, loader.batch({3}));
  pool.cancel(*second);
  second.reset();
  EXPECT_EQ(loader.memory->stats().in_use, 2u);
  loader.source->open_all();
  expect_done(pool, first);
  expect_done(pool, third);
  EXPECT(loader.source->begun() == (Indices{0, 3}));
  pool.cancel(*third);  // done long ago
  const Batch never = loader.batch({4});
  pool.cancel(*never);  // never submitted
}

/// What Python does when an iterator is dropped in the middle, at any moment.
TEST(batches_are_dropped_at_any_moment) {
  DecodePool pool;
  const Loader loader(16, 3);
  pool.grow(4);
  for (uint64_t i = 0; i < 100; ++i) {
    const size_t before = loader.source->begun().size();
    std::vector<Batch> batches;
    for (uint64_t k = 0; k < 3; ++k) batches.push_back(submitted(pool, loader.batch(range(k, 16))));
    loader.source->wait_begun(before + i % 5);
    for (Batch& batch : batches) {
      pool.cancel(*batch);
      batch.reset();
    }
    const size_t begun = loader.source->begun().size();
    expect_done(pool, submitted(pool, loader.batch({5})));
    EXPECT_EQ(loader.source->begun().size(), begun + 1);
  }
}

TEST(a_batch_that_everybody_forgot_is_finished_and_freed) {
  const auto memory = [] {
    DecodePool pool;
    const Loader loader(4, 2);
    loader.source->hold_all();
    pool.grow(2);
    pool.submit(loader.batch(range(0, 4)));
    loader.source->wait_begun(2);
    loader.source->open_all();
    loader.source->wait_begun(4);
    return loader.memory;
  }();  // the threads are joined
  EXPECT_EQ(memory->stats().in_use, 0u);
  EXPECT_EQ(memory->stats().made, 1u);
}

TEST(failures_come_in_the_order_of_their_positions_and_spare_the_others) {
  DecodePool pool;
  const Loader loader(8, 4);
  loader.source->hold({1, 3, 6});
  loader.source->instead(1, [] { throw SourceError("one is gone"); });
  loader.source->instead(3, [] { throw 3; });
  loader.source->instead(6, [] { throw std::length_error("six is long"); });
  pool.grow(4);
  const Batch batch = submitted(pool, loader.batch(range(0, 8)));
  loader.source->wait_begun(8);
  for (const uint64_t next : {6, 3, 1}) {  // the last one first
    loader.source->open(next);
    const Batch after = submitted(pool, loader.batch({0}));
    expect_done(pool, after);
    EXPECT(after->failures().empty());
  }
  expect_done(pool, batch);
  const auto& failures = batch->failures();
  EXPECT_EQ(failures.size(), 3u);
  EXPECT_EQ(failures[0].position, 1u);
  EXPECT_EQ(failures[0].reason, "one is gone");
  EXPECT_EQ(failures[1].position, 3u);
  EXPECT(!failures[1].reason.empty());
  EXPECT_EQ(failures[2].position, 6u);
  EXPECT_EQ(failures[2].reason, "six is long");
  for (const size_t position : {0, 2, 4, 5, 7}) {
    EXPECT(bytes_of(*batch, position) == decoded_alone(loader, position, 7));
  }
}

TEST(a_batch_in_which_everything_fails_is_done) {
  DecodePool pool;
  const Loader loader(9, 3);
  for (const uint64_t index : range(0, 9)) {
    loader.source->instead(index, [index] { throw DecodeError(std::to_string(index)); });
  }
  pool.grow(3);
  const Batch batch = submitted(pool, loader.batch({8, 1, 4, 1, 0}));
  expect_done(pool, batch);
  std::string reasons;
  for (const auto& failure : batch->failures()) reasons += failure.reason;
  EXPECT_EQ(reasons, "81410");
}

TEST(an_empty_batch_is_done_at_once) {
  DecodePool pool;  // without a thread
  const Loader loader(1, 1);
  const Batch batch = submitted(pool, loader.batch({}));
  EXPECT(done(pool, batch));
  EXPECT(batch->failures().empty());
  pool.cancel(*batch);
  EXPECT(done(pool, submitted(pool, loader.batch({}, {}))));
}

TEST(the_pool_grows_while_it_works_and_never_shrinks) {
  DecodePool pool;
  const Loader loader(6, 9);
  loader.source->hold_all();
  pool.grow(1);
  const Batch batch = submitted(pool, loader.batch(range(0, 6)));
  loader.source->wait_begun(1);
  EXPECT_EQ(loader.source->begun().size(), 1u);
  pool.grow(3);
  loader.source->wait_begun(3);
  pool.grow(2);
  EXPECT_EQ(pool.threads(), 3u);
  Actor grower([&] { pool.grow(5); });
  grower.join();
  loader.source->wait_begun(5);
  loader.source->open_all();
  expect_done(pool, batch);
  EXPECT_EQ(loader.source->most_inside(), 5u);
}

TEST(the_bytes_do_not_depend_on_threads_or_order) {
  const Indices order = {5, 0, 11, 5, 3, 2, 1, 9, 8, 7, 6, 4, 10, 10};
  const Loader loader(12, 8);
  for (size_t threads = 1; threads <= 8; ++threads) {
    DecodePool pool;
    pool.grow(threads);
    const Batch alike = submitted(pool, loader.batch(order, {99}));
    std::vector<uint64_t> seeds;
    for (size_t i = 0; i < order.size(); ++i) seeds.push_back(1000 + i % 3);
    const Batch each = submitted(pool, loader.batch(order, seeds));
    expect_done(pool, each);
    expect_done(pool, alike);
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT(bytes_of(*alike, i) == decoded_alone(loader, order[i], 99));
      EXPECT(bytes_of(*each, i) == decoded_alone(loader, order[i], seeds[i]));
    }
  }
}

TEST(memory_that_is_not_taken_is_given_back_once) {
  DecodePool pool;
  const Loader loader(4, 2);
  pool.grow(2);
  Batch batch = submitted(pool, loader.batch(range(0, 4)));
  expect_done(pool, batch);
  EXPECT_EQ(loader.memory->stats().in_use, 1u);
  DecodeBatch::Memory taken = batch->release_memory();
  EXPECT(taken != nullptr);
  EXPECT(batch->release_memory() == nullptr);
  batch.reset();
  EXPECT_EQ(loader.memory->stats().in_use, 1u);
  taken.reset();
  EXPECT_EQ(loader.memory->stats().in_use, 0u);
  for (int i = 0; i < 10; ++i) {
    loader.batch(range(0, 4)).reset();  // never submitted
    EXPECT_EQ(loader.memory->stats().in_use, 0u);
  }
  EXPECT_EQ(loader.memory->stats().made, 1u);
}

TEST(a_pool_is_destroyed_with_work_queued) {
  const Loader loader(6, 1);
  auto pool = std::make_unique<DecodePool>();
  loader.source->hold({0});
  pool->grow(2);
  pool->submit(loader.batch(range(0, 3)));
  pool->submit(loader.batch(range(3, 6)));
  loader.source->wait_begun(1);
  Actor destroyer([&] { pool.reset(); }, [&] { loader.source->open_all(); });
  destroyer.wait_until_asleep();
  loader.source->open_all();
  destroyer.join();
  EXPECT(loader.source->begun() == (Indices{0}));
  EXPECT_EQ(loader.memory->stats().in_use, 0u);
}

TEST(consumers_of_several_loaders_share_one_pool) {
  DecodePool pool;
  const auto consume = [&](uint64_t seed, size_t threads) {
    const Loader loader(16, threads);
    pool.grow(threads);
    for (uint64_t i = 0; i < 40; ++i) {
      const Batch batch = submitted(pool, loader.batch(range(i % 8, 16), {seed}));
      const Batch dropped = submitted(pool, loader.batch(range(0, 16)));
      expect_done(pool, batch);
      EXPECT(bytes_of(*batch, i % 3) == decoded_alone(loader, i % 8 + i % 3, seed));
      pool.cancel(*dropped);
    }
    EXPECT(loader.source->most_inside() <= threads);
  };
  Actor first([&] { consume(1, 1); });
  Actor second([&] { consume(2, 3); });
  Actor third([&] { consume(3, 2); });
  first.join();
  second.join();
  third.join();
}

TEST(each_sample_has_the_job_of_its_kind) {
  DecodePool pool;
  const Loader loader(9, 2);
  auto other = std::make_shared<ImageJob>(*loader.job);
  other->transform.vertical_flip = 1.0;
  other->transform.random_crop.reset();
  const std::vector<std::shared_ptr<const ImageJob>> jobs = {loader.job, other};
  const std::vector<uint32_t> kinds = {0, 1, 1, 0, 1, 0, 0, 1};
  const auto batch_of = [&](std::vector<uint32_t> wanted) {
    return std::make_shared<DecodeBatch>(std::vector<DecodeBatch::View>{{jobs, 0, nullptr}},
                                         loader.quota, range(0, 8),
                                         DecodeBatch::Keys{{}, {7}, std::move(wanted), {}},
                                         [&](size_t bytes) { return loader.memory->share(bytes); });
  };
  pool.grow(2);
  const Batch batch = submitted(pool, batch_of(kinds));
  expect_done(pool, batch);
  EXPECT(batch->failures().empty());
  SampleDecoder decoder;
  size_t different = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    std::vector<std::vector<uint8_t>> made(jobs.size());
    for (size_t kind = 0; kind < jobs.size(); ++kind) {
      made[kind].resize(loader.job->sample_bytes());
      decoder.decode(*jobs[kind], i, 7, made[kind].data());
    }
    EXPECT(bytes_of(*batch, i) == made[kinds[i]]);
    if (made[0] != made[1]) ++different;
  }
  EXPECT(different > 0);
  std::vector<PictureView> views;
  batch->views_of(0, views, 1);
  EXPECT(views[0].job == other.get());
  EXPECT_THROW(batch->views_of(0, views, 2), InvalidArgument, "kind 2 in a view of 2");
  EXPECT_THROW(batch_of({0, 1, 2, 0, 0, 0, 0, 0}), InvalidArgument, "kind 2 in a view of 2");
  EXPECT_THROW(batch_of({0, 1}), InvalidArgument, "2 kinds");
  other->transform.exact = {9, 9};
  EXPECT_THROW(batch_of(kinds), InvalidArgument, "of one form");
}

TEST(pictures_go_to_places_of_the_callers) {
  DecodePool pool;
  const Loader loader(9, 2);
  const size_t bytes = loader.job->sample_bytes();
  std::vector<std::vector<std::byte>> places(8, std::vector<std::byte>(bytes));
  DecodeBatch::View view{{loader.job}, 0, nullptr, {}, {}};
  for (auto& place : places) view.outs.push_back(place.data());
  const auto no_memory = [](size_t) -> DecodeBatch::Memory { throw std::bad_alloc(); };
  const auto batch_of = [&](const DecodeBatch::View& wanted) {
    return std::make_shared<DecodeBatch>(std::vector<DecodeBatch::View>{wanted}, loader.quota,
                                         range(0, 8), DecodeBatch::Keys{{}, {7}, {}, {}},
                                         no_memory);
  };
  pool.grow(2);
  const Batch batch = submitted(pool, batch_of(view));
  expect_done(pool, batch);
  EXPECT(batch->failures().empty());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto* const made = reinterpret_cast<const uint8_t*>(places[i].data());
    EXPECT((std::vector<uint8_t>{made, made + bytes}) == decoded_alone(loader, i, 7));
  }
  view.outs.pop_back();
  EXPECT_THROW(batch_of(view), InvalidArgument, "7 places in a batch of 8 samples");
}

TEST(pictures_of_sizes_of_their_own_have_memory_of_their_own) {
  DecodePool pool;
  const Loader loader(9, 2);
  auto own = std::make_shared<ImageJob>(*loader.job);
  own->transform.random_crop.reset();
  own->transform.scale = ImageTransform::Scale::kKeep;
  own->own_sizes = true;
  validate(*own);
  auto planar = std::make_shared<ImageJob>(*own);
  planar->output = ImageJob::Output::kNchwBytes;
  auto table = std::make_shared<ImageJob>(*own);
  table->output = ImageJob::Output::kLookedUp;
  for (size_t i = 0; i < 3 * 256; ++i) table->table.push_back(static_cast<float>(i) / 4);
  auto pixels = std::make_shared<ImageJob>(*table);
  pixels->table_layout = Layout::kNhwc;
  const std::vector<std::shared_ptr<const ImageJob>> jobs = {own, planar, table, pixels};
  std::vector<DecodeBatch::View> views;
  for (const auto& job : jobs) views.push_back({{job}, 0, nullptr, {}, {}});
  const auto batch = std::make_shared<DecodeBatch>(
      std::move(views), loader.quota, range(0, 8), DecodeBatch::Keys{{}, {7}, {}, {}},
      [&](size_t bytes) { return loader.memory->share(bytes); });
  pool.grow(2);
  pool.submit(batch);
  expect_done(pool, batch);
  EXPECT(batch->failures().empty());
  std::set<std::pair<size_t, size_t>> sizes;
  for (size_t i = 0; i < batch->size(); ++i) {
    const ImageSize size = batch->own(i, 0).size;
    sizes.insert({size.height, size.width});
    const size_t count = size.height * size.width;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(batch->own(i, 0).memory.get());
    const auto* const planes = reinterpret_cast<const uint8_t*>(batch->own(i, 1).memory.get());
    const auto* const found = reinterpret_cast<const float*>(batch->own(i, 2).memory.get());
    const auto* const beside = reinterpret_cast<const float*>(batch->own(i, 3).memory.get());
    for (size_t each = 0; each < count * 3; ++each) {
      const size_t pixel = each / 3;
      const size_t channel = each % 3;
      const uint8_t byte = bytes[each];
      EXPECT_EQ(planes[channel * count + pixel], byte);
      EXPECT_EQ(found[channel * count + pixel], table->table[channel * 256 + byte]);
      EXPECT_EQ(beside[each], table->table[channel * 256 + byte]);
    }
  }
  EXPECT(sizes.size() > 1);
  EXPECT(!table->makes_as(*pixels));
  EXPECT_THROW(batch->sample(0), InvalidArgument, "taken already");
}

TEST(what_could_never_work_is_refused) {
  const Loader loader(4, 1);
  EXPECT_THROW(DecodeQuota(0), InvalidArgument, "quota");
  EXPECT_THROW(loader.batch({0, 4}), InvalidArgument, "sample 4 of 4");
  EXPECT_THROW(loader.batch({0, 1, 2}, {1, 2}), InvalidArgument, "3 samples with 2 seeds");
  EXPECT_THROW(loader.batch({0}, {}), InvalidArgument, "0 seeds");
  EXPECT_EQ(loader.memory->stats().made, 0u);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
