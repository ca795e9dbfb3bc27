// Rows copied by index: what the indices mean, every size of row, and which thread copies a piece.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "actor.h"
#include "base/error.h"
#include "check.h"
#include "child_process.h"
#include "mapped_file.h"
#include "pipeline/gather_pool.h"

namespace fastloader::testing {
namespace {

using Rows = std::vector<uint64_t>;

Rows resolved(const std::vector<int64_t>& indices, uint64_t rows) {
  return resolve_rows(indices.data(), indices.size(), nullptr, 0, rows);
}

Rows resolved(const std::vector<int64_t>& indices, const std::vector<int64_t>& map, uint64_t rows) {
  return resolve_rows(indices.data(), indices.size(), map.data(), map.size(), rows);
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::out_of_range& error) {
    return error.what();
  }
  return "";
}

TEST(indices_count_from_either_end) {
  EXPECT(resolved({0, 4, -1, -5}, 5) == (Rows{0, 4, 4, 0}));
  EXPECT(resolved({0, 2, -1, -3}, {7, -1, 3}, 9) == (Rows{7, 3, 3, 7}));
  EXPECT(resolved({1}, {7, -1, 3}, 9) == (Rows{8}));
  EXPECT(resolved({}, 0).empty());
}

TEST(indices_that_an_array_lacks_are_refused) {
  constexpr int64_t kLeast = INT64_MIN;
  for (const int64_t wrong : {int64_t{5}, int64_t{-6}, kLeast, INT64_MAX}) {
    const std::string said = refusal([&] { resolved({1, wrong}, 5); });
    EXPECT(said.find(std::to_string(wrong)) != std::string::npos);
  }
  EXPECT(!refusal([] { resolved({0}, 0); }).empty());
  EXPECT(!refusal([] { resolved({3}, {0, 1, 2}, 9); }).empty());
  EXPECT(!refusal([] { resolved({2}, {0, 1, 9}, 9); }).empty());
  EXPECT(!refusal([] { resolved({2}, {0, 1, -10}, 9); }).empty());
  EXPECT(refusal([] { resolved({1}, {0, 1, 9}, 9); }).empty());  // the wrong one was not asked for
}

/// Random rows of an array, and where they belong.
struct Sample {
  std::vector<unsigned char> source;
  Rows rows;
  std::vector<unsigned char> out;
  GatherLeaf leaf;

  Sample(std::mt19937& random, size_t row_bytes, size_t gap, size_t count) {
    const size_t step = row_bytes + gap;
    const size_t height = 1 + random() % 40;
    source.resize(height * step + 1);
    for (size_t i = 0; i < source.size(); i += sizeof(uint32_t)) {
      const auto word = static_cast<uint32_t>(random());
      std::memcpy(&source[i], &word, std::min(sizeof word, source.size() - i));
    }
    for (size_t i = 0; i < count; ++i) rows.push_back(random() % height);
    out.assign(count * row_bytes + 1, 99);
    leaf.source = reinterpret_cast<const std::byte*>(source.data());
    leaf.row_bytes = row_bytes;
    leaf.row_step = step;
    leaf.destination = reinterpret_cast<std::byte*>(out.data());
  }

  bool right(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      const unsigned char* const row = source.data() + rows[i] * leaf.row_step;
      if (!std::equal(row, row + leaf.row_bytes, out.data() + i * leaf.row_bytes)) return false;
    }
    return out.back() == 99;
  }
};

TEST(rows_of_every_size) {
  std::mt19937 random(std::random_device{}());
  for (size_t bytes = 0; bytes < 300; ++bytes) {
    Sample sample(random, bytes, random() % 3 * 8, 100);
    sample.leaf.mapped = random() % 2 == 0;
    EXPECT_EQ(gather_rows(sample.leaf, sample.rows.data(), 0, 100), size_t{100});
    EXPECT(sample.right(0, 100));
  }
  for (const size_t bytes : {4095, 4096, 4097, 10000, 150528}) {
    Sample sample(random, bytes, 0, 5);
    gather_rows(sample.leaf, sample.rows.data(), 0, 5);
    EXPECT(sample.right(0, 5));
  }
}

TEST(only_the_rows_asked_for_are_written) {
  std::mt19937 random(std::random_device{}());
  for (const size_t bytes : {1, 8, 16, 24, 5000}) {
    Sample sample(random, bytes, 0, 50);
    gather_rows(sample.leaf, sample.rows.data(), 10, 37);
    EXPECT(sample.right(10, 37));
    const auto untouched = [](unsigned char byte) { return byte == 99; };
    const auto at = [&](size_t row) {
      return sample.out.begin() + static_cast<std::ptrdiff_t>(row * bytes);
    };
    EXPECT(std::all_of(sample.out.begin(), at(10), untouched));
    EXPECT(std::all_of(at(37), sample.out.end(), untouched));
  }
}

TEST(a_row_that_was_cut_off_is_named_and_no_other_is) {
  constexpr size_t kRow = 1000;
  const auto body = [] {
    const MappedFile file(std::vector<uint8_t>(300 * kRow, 5));
    std::vector<unsigned char> out(3000 * kRow);
    GatherLeaf leaf;
    leaf.source = reinterpret_cast<const std::byte*>(file.data());
    leaf.row_bytes = leaf.row_step = kRow;
    leaf.destination = reinterpret_cast<std::byte*>(out.data());
    leaf.mapped = true;
    Rows rows;
    for (size_t i = 0; i < 3000; ++i) rows.push_back(i % 50);
    rows[2500] = 299;
    GatherPool pool;
    pool.grow(2);
    const auto unread = [&] {
      const auto gather =
          std::make_shared<GatherBatch>(std::vector<GatherLeaf>{leaf}, std::vector<Rows>{rows});
      pool.submit(gather);
      EXPECT(pool.wait(*gather, GatherPool::Clock::now() + std::chrono::seconds(60)));
      return pool.unread(*gather);
    };
    EXPECT(!unread());
    file.cut(60 * kRow);
    const std::optional<UnreadRow> row = unread();
    EXPECT(row.has_value());
    EXPECT_EQ(row->leaf, size_t{0});
    EXPECT_EQ(row->position, size_t{2500});
    EXPECT_EQ(gather_rows(leaf, rows.data(), 2400, 3000), size_t{2500});
    rows[2500] = 0;
    EXPECT(!unread());
    EXPECT(out == std::vector<unsigned char>(out.size(), 5));
  };
  EXPECT_EQ(in_forked_child(body).exit_code, 0);
}

TEST(an_expanded_array_has_one_row) {
  std::mt19937 random(std::random_device{}());
  Sample sample(random, 12, 0, 9);
  sample.leaf.row_step = 0;
  gather_rows(sample.leaf, sample.rows.data(), 0, 9);
  for (size_t i = 0; i < 9; ++i)
    EXPECT(std::memcmp(&sample.out[i * 12], sample.source.data(), 12) == 0);
}

constexpr auto kLong = std::chrono::seconds(60);

/// A batch of a few arrays, large enough for several pieces.
struct Batch {
  std::vector<std::unique_ptr<Sample>> samples;
  std::shared_ptr<GatherBatch> gather;

  explicit Batch(std::mt19937& random) {
    std::vector<GatherLeaf> leaves;
    std::vector<Rows> lists;
    const size_t count = 1 + random() % 300;
    for (const size_t bytes : {8, 0, 700, 40000}) {
      samples.push_back(std::make_unique<Sample>(random, bytes, 0, count));
      leaves.push_back(samples.back()->leaf);
      leaves.back().list = lists.size();
      lists.push_back(samples.back()->rows);
    }
    gather = std::make_shared<GatherBatch>(std::move(leaves), std::move(lists));
  }

  bool right() const {
    return std::all_of(samples.begin(), samples.end(),
                       [](const auto& sample) { return sample->right(0, sample->rows.size()); });
  }
};

TEST(whoever_waits_copies_what_nobody_offers_to) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  Batch submitted(random);
  pool.submit(submitted.gather);  // to no thread
  EXPECT(pool.wait(*submitted.gather, GatherPool::Clock::now() + kLong));
  EXPECT(submitted.right());
  Batch kept(random);
  EXPECT(pool.wait(*kept.gather, GatherPool::Clock::now() + kLong));
  EXPECT(kept.right());
  EXPECT(pool.wait(*kept.gather, GatherPool::Clock::now()));
}

TEST(a_deadline_that_has_passed_ends_the_wait_and_loses_nothing) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  Batch batch(random);
  size_t calls = 1;
  while (!pool.wait(*batch.gather, GatherPool::Clock::time_point::min())) ++calls;
  const size_t pieces = batch.gather->pieces();
  EXPECT_EQ(calls, pieces);
  EXPECT(batch.right());
}

TEST(threads_copy_what_nobody_waits_for) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  pool.grow(2);
  std::vector<std::unique_ptr<Batch>> batches;
  for (int i = 0; i < 20; ++i) {
    batches.push_back(std::make_unique<Batch>(random));
    pool.submit(batches.back()->gather);
  }
  // The last is begun last; once it is done, the others are at most being finished.
  for (auto batch = batches.rbegin(); batch != batches.rend(); ++batch) {
    EXPECT(pool.wait(*(*batch)->gather, GatherPool::Clock::now() + kLong));
    EXPECT((*batch)->right());
  }
}

TEST(one_piece_is_copied_though_nobody_waits) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  pool.grow(2);
  // More than once, since a thread that has not slept yet finds a piece without being woken.
  for (int round = 0; round < 20; ++round) {
    const Sample sample(random, 8, 0, 5);
    const auto gather = std::make_shared<GatherBatch>(std::vector<GatherLeaf>{sample.leaf},
                                                      std::vector<Rows>{sample.rows});
    EXPECT_EQ(gather->pieces(), size_t{1});
    pool.submit(gather);
    const auto deadline = GatherPool::Clock::now() + kLong;
    while (pool.nanoseconds(*gather) == 0 && GatherPool::Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT(pool.nanoseconds(*gather) > 0);  // wait() would have copied it itself
    EXPECT(pool.wait(*gather, GatherPool::Clock::now() + kLong));
    EXPECT(sample.right(0, 5));
  }
}

TEST(after_cancel_nothing_is_written) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  pool.grow(3);
  for (int i = 0; i < 100; ++i) {
    Batch batch(random);
    pool.submit(batch.gather);
    if (i % 3 == 0) pool.wait(*batch.gather, GatherPool::Clock::time_point::min());
    pool.cancel(*batch.gather);
    // The sanitizers see a thread that writes after this.
    for (auto& sample : batch.samples) std::memset(sample->out.data(), 1, sample->out.size());
  }
}

TEST(several_loaders_share_the_threads) {
  GatherPool pool;
  pool.grow(2);
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<Actor>> actors;
  for (int me = 0; me < 3; ++me) {
    actors.push_back(std::make_unique<Actor>([&] {
      std::mt19937 random(std::random_device{}());
      for (int round = 0; round < 20; ++round) {
        Batch first(random);
        Batch second(random);
        pool.submit(first.gather);
        pool.submit(second.gather);
        while (!pool.wait(*first.gather, GatherPool::Clock::now() + kLong)) {
        }
        if (!first.right()) ++wrong;
        pool.cancel(*second.gather);
      }
    }));
  }
  for (auto& actor : actors) actor->join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(a_batch_begun_before_a_fork_is_the_parents) {
  std::mt19937 random(std::random_device{}());
  GatherPool pool;
  Batch batch(random);
  pool.submit(batch.gather);
  const ChildEnd end = in_forked_child([&] {
    try {
      pool.wait(*batch.gather, GatherPool::Clock::now() + kLong);
      std::_Exit(1);
    } catch (const Error&) {
    }
    pool.cancel(*batch.gather);
  });
  EXPECT_EQ(end.exit_code, 0);
  EXPECT(pool.wait(*batch.gather, GatherPool::Clock::now() + kLong));
  EXPECT(batch.right());
}

TEST(an_array_without_rows_is_refused) {
  GatherLeaf leaf;
  leaf.list = 1;
  bool refused = false;
  try {
    GatherBatch({leaf}, {{0}});
  } catch (const InvalidArgument&) {
    refused = true;
  }
  EXPECT(refused);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
