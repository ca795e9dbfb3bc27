#include "pipeline/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "child_process.h"
#include "decode_pool_test.h"
#include "pipeline/reading_need.h"
#include "source/delayed_source.h"
#include "source/folder_source.h"

namespace fastloader {
namespace {

using namespace testing;
using Mode = ReadingNeed::Mode;

std::shared_ptr<GatedSource> slow(uint64_t count) {
  return std::make_shared<GatedSource>(count, true);
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

void expect_pictures(const Loader& loader, const Batch& batch) {
  EXPECT(batch->failures().empty());
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT(bytes_of(*batch, i) == decoded_alone(loader, batch->index(i), 7));
  }
}

TEST(files_of_all_batches_are_read_while_the_decode_thread_waits_for_the_first) {
  DecodePool pool;
  const Loader loader(slow(12), 1, Mode::kAlways);
  loader.source->hold({3});
  pool.grow(1);
  const Batch first = submitted(pool, loader.batch({3, 1, 2}));
  const Batch second = submitted(pool, loader.batch(range(4, 12)));
  loader.source->wait_begun(11);
  EXPECT(!done(pool, first));
  loader.source->open(3);
  for (const Batch& batch : {first, second}) expect_done(pool, batch);
  // Each once, by whichever thread.
  EXPECT(sorted(loader.source->begun()) == (Indices{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  const StageTimes times = pool.times(*loader.quota);
  EXPECT_EQ(times.files, 11u);
  EXPECT(times.waited >= 1);
  for (const Batch& batch : {first, second}) expect_pictures(loader, batch);
  EXPECT_EQ(ReadAhead::shared().held(), 0u);
}

TEST(without_reading_ahead_a_file_is_read_by_who_decodes_it) {
  DecodePool pool;
  const Loader loader(slow(6), 1, Mode::kNever);
  pool.grow(1);
  const Batch batch = submitted(pool, loader.batch({5, 0, 3, 1}));
  expect_done(pool, batch);
  EXPECT(loader.source->begun() == (Indices{5, 0, 3, 1}));
  EXPECT_EQ(loader.source->most_inside(), 1u);
  expect_pictures(loader, batch);
}

TEST(memory_is_never_read_ahead) {
  DecodePool pool;
  const Loader loader(std::make_shared<GatedSource>(6), 1, Mode::kAlways);
  pool.grow(1);
  expect_done(pool, submitted(pool, loader.batch({5, 0, 3, 1})));
  EXPECT(loader.source->begun() == (Indices{5, 0, 3, 1}));
  EXPECT_EQ(pool.times(*loader.quota).files, 0u);
}

TEST(reading_ahead_begins_with_batches_that_wait_already_once_reading_waits) {
  DecodePool pool;
  const Loader loader(slow(64), 1, Mode::kAsNeeded);
  // Each read sleeps for a moment, so that the system counts it.
  const auto job =
      job_of(std::make_shared<DelayedSource>(loader.source, std::chrono::microseconds(100)));
  const auto batch_of = [&](Indices indices) {
    return std::make_shared<DecodeBatch>(job, loader.quota, std::move(indices),
                                         std::vector<uint64_t>{7},
                                         [&](size_t bytes) { return loader.memory->share(bytes); });
  };
  loader.source->hold({0, 16});
  pool.grow(1);
  const Batch first = submitted(pool, batch_of(range(0, 16)));
  const Batch second = submitted(pool, batch_of(range(16, 32)));
  loader.source->wait_begun(1);
  loader.source->open(0);
  // The decode thread stands at the first of the second batch, and the others are read.
  loader.source->wait_begun(32);
  EXPECT(!done(pool, second));
  loader.source->open_all();
  for (const Batch& batch : {first, second}) {
    expect_done(pool, batch);
    expect_pictures(loader, batch);
  }
  EXPECT_EQ(pool.times(*loader.quota).waited, 32u);
}

TEST(files_that_are_there_at_once_end_it_and_few_that_are_not_change_nothing) {
  ReadingNeed need(Mode::kAsNeeded);
  EXPECT(!need.ahead());
  for (int i = 0; i < 96; ++i) need.add(1, i % 8 == 0 ? 1 : 0);
  EXPECT(!need.ahead());
  for (int i = 0; i < 32; ++i) need.add(1, i % 3 == 0 ? 1 : 0);
  EXPECT(need.ahead());
  for (int i = 0; i < 96; ++i) need.add(1, i % 8 == 0 ? 1 : 0);
  EXPECT(need.ahead());
  for (int i = 0; i < 32; ++i) need.add(1, 0);
  EXPECT(!need.ahead());
  ReadingNeed never(Mode::kNever);
  ReadingNeed always(Mode::kAlways);
  for (int i = 0; i < 100; ++i) {
    never.add(1, 1);
    always.add(1, 0);
  }
  EXPECT(!never.ahead());
  EXPECT(always.ahead());
}

TEST(what_reading_throws_is_the_samples_failure) {
  DecodePool pool;
  const Loader loader(slow(8), 2, Mode::kAlways);
  loader.source->hold({0});
  loader.source->instead(5, [] { throw SourceError("cannot read five: it is gone"); });
  pool.grow(2);
  const Batch batch = submitted(pool, loader.batch(range(0, 8)));
  loader.source->wait_begun(8);
  loader.source->open(0);
  expect_done(pool, batch);
  EXPECT_EQ(batch->failures().size(), 1u);
  EXPECT_EQ(batch->failures()[0].position, 5u);
  EXPECT_EQ(batch->failures()[0].reason, "cannot read five: it is gone");
}

TEST(cancelling_waits_for_threads_that_are_reading_and_drops_what_they_read) {
  DecodePool pool;
  const Loader loader(slow(40), 1, Mode::kAlways);
  loader.source->hold({0, 1, 2});
  pool.grow(1);
  Batch batch = submitted(pool, loader.batch(range(0, 40)));
  loader.source->wait_begun(40);
  {
    Actor canceller([&] { pool.cancel(*batch); }, [&] { loader.source->open_all(); });
    canceller.wait_until_asleep();
    loader.source->open(0);
    loader.source->open(1);
    canceller.wait_until_asleep();
    loader.source->open(2);
    canceller.join();
  }
  batch.reset();
  // A reading thread lets go of its batch when it looks for the next one.
  const Clock::time_point late = Clock::now() + std::chrono::seconds(60);
  while (ReadAhead::shared().held() != 0) {
    EXPECT(Clock::now() < late);
    std::this_thread::yield();
  }
}

TEST(a_batch_that_is_stopped_begins_no_more_files) {
  DecodePool pool;
  const Loader loader(slow(200), 1, Mode::kAlways);
  loader.source->hold_all();
  pool.grow(1);
  const Batch batch = submitted(pool, loader.batch(range(0, 200)));
  loader.source->wait_begun(16);
  pool.stop(*batch);
  EXPECT(pool.wait(*batch, Clock::now() + std::chrono::seconds(60)) ==
         DecodePool::WaitStatus::kCancelled);
  loader.source->open_all();
  pool.cancel(*batch);
  EXPECT(loader.source->begun().size() < 100);
}

/// Files of a MiB, which are no pictures.
class LargeFiles : public Source {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr uint64_t kCount = 300;

  uint64_t size() const override { return kCount; }
  bool may_wait() const override { return true; }
  std::string name(uint64_t index) const override { return "file " + std::to_string(index); }
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override {
    gate.read(index, bytes);
    bytes.assign(kBytes, static_cast<uint8_t>(index));
  }

  GatedSource gate{kCount};
};

TEST(so_much_is_read_ahead_and_no_more_until_it_is_taken) {
  DecodePool pool;
  const auto source = std::make_shared<LargeFiles>();
  const auto job = job_of(source);
  const auto memory = BufferPool::create();
  const auto quota = std::make_shared<DecodeQuota>(1, Mode::kAlways);
  ReadAhead& reading = ReadAhead::shared();
  const size_t threads = ReadAhead::threads_for(1, 1);
  reading.grow(threads);
  constexpr uint64_t kLater = 130;
  source->gate.hold({0, kLater});
  pool.grow(1);
  const auto batch = std::make_shared<DecodeBatch>(
      job, quota, range(0, LargeFiles::kCount), std::vector<uint64_t>{7},
      [&](size_t bytes) { return memory->share(bytes); });
  pool.submit(batch);
  const size_t full = static_cast<size_t>(ReadAhead::kMostHeld) / LargeFiles::kBytes;
  const size_t most = full + threads;
  source->gate.wait_begun(1 + full);
  // One thread may stand at the first file.
  while (reading.sleeping() + 1 < threads) {
    EXPECT(source->gate.begun().size() <= 1 + most);
    std::this_thread::yield();
  }
  EXPECT(source->gate.begun().size() <= 1 + most);
  EXPECT(reading.held() <= most * LargeFiles::kBytes);
  // Threads go on while the decode thread takes what they have read, past the file at which it then
  // has to wait.
  source->gate.open(0);
  source->gate.wait_begun(kLater + full / 2);
  source->gate.open_all();
  expect_done(pool, batch);
  EXPECT_EQ(batch->failures().size(), LargeFiles::kCount);
  EXPECT_EQ(source->gate.begun().size(), LargeFiles::kCount);
  EXPECT_EQ(reading.held(), 0u);
}

TEST(files_on_a_disk_come_as_they_are_and_fail_in_the_same_words) {
  char folder[] = "/tmp/fastloader-read-ahead-XXXXXX";
  EXPECT(mkdtemp(folder) != nullptr);
  const std::vector<std::vector<uint8_t>> pictures = small_pictures(40);
  std::string paths;
  std::vector<uint64_t> ends;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::string path = std::string(folder) + "/" + std::to_string(i);
    paths += path;
    ends.push_back(paths.size());
    if (i % 13 == 5) continue;  // not there
    std::ofstream file(path, std::ios::binary);
    const size_t size = i % 13 == 7 ? 0 : pictures[i].size();
    file.write(reinterpret_cast<const char*>(pictures[i].data()),
               static_cast<std::streamsize>(size));
  }
  const auto source =
      std::make_shared<FolderSource>(paths.data(), paths.size(), ends.data(), ends.size());
  const auto job = job_of(source);
  const auto memory = BufferPool::create();
  DecodePool pool;
  pool.grow(2);
  std::vector<Batch> batches;
  for (const Mode mode : {Mode::kNever, Mode::kAlways}) {
    const auto quota = std::make_shared<DecodeQuota>(2, mode);
    batches.push_back(submitted(
        pool, std::make_shared<DecodeBatch>(job, quota, range(0, 40), std::vector<uint64_t>{7},
                                            [&](size_t bytes) { return memory->share(bytes); })));
    expect_done(pool, batches.back());
  }
  std::filesystem::remove_all(folder);
  const std::vector<DecodeBatch::Failure>& failures = batches[0]->failures();
  EXPECT_EQ(failures.size(), 6u);
  EXPECT_EQ(batches[1]->failures().size(), 6u);
  std::set<size_t> failed;
  for (size_t i = 0; i < failures.size(); ++i) {
    EXPECT_EQ(batches[1]->failures()[i].position, failures[i].position);
    EXPECT_EQ(batches[1]->failures()[i].reason, failures[i].reason);
    failed.insert(failures[i].position);
  }
  for (size_t i = 0; i < 40; ++i) {
    if (failed.count(i) == 0) EXPECT(bytes_of(*batches[0], i) == bytes_of(*batches[1], i));
  }
  EXPECT_EQ(ReadAhead::shared().held(), 0u);
}

TEST(a_forked_child_reads_with_threads_of_its_own) {
  if (FASTLOADER_TSAN) throw Skip{"ThreadSanitizer forbids threads in a forked child"};
  DecodePool& pool = DecodePool::shared();
  const Loader loader(slow(12), 1, Mode::kAlways);
  // The gates have a mutex, which a thread of the parent may hold at the fork: the child has its
  // own.
  const Loader inherited(slow(12), 1, Mode::kAlways);
  loader.source->hold({0});
  pool.grow(1);
  Batch batch = submitted(pool, loader.batch(range(0, 6)));
  loader.source->wait_begun(6);
  const ChildEnd end = in_forked_child([&] {
    DecodePool& mine = DecodePool::shared();
    mine.cancel(*batch);  // waits for no thread that is not here
    batch.reset();
    mine.grow(1);
    expect_done(mine, submitted(mine, inherited.batch(range(6, 12))));
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  loader.source->open_all();
  expect_done(pool, batch);
  expect_pictures(loader, batch);
}

TEST(the_system_counts_how_often_a_thread_waits) {
  Door door;
  uint64_t idle = 1;
  uint64_t waited = 0;
  Actor actor(
      [&] {
        const uint64_t before = own_waits();
        idle = own_waits() - before;
        door.pass();
        waited = own_waits() - before;
      },
      [&] { door.open(); });
  actor.wait_until_asleep();
  door.open();
  actor.join();
  EXPECT_EQ(idle, 0u);
  EXPECT(waited >= 1);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
