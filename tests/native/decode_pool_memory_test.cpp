// What a decode thread does when there is no memory: every allocation of the program goes by here,
// and those of decode threads fail while a test says so.

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "decode_pool_test.h"

namespace {

// Partners: the test and the decode threads, which gates bring into order.
std::atomic<bool> g_out_of_memory{false};

bool on_decode_thread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::strcmp(name, "fl-decode") == 0;
}

void* allocate(std::size_t bytes) {
  if (g_out_of_memory && on_decode_thread()) throw std::bad_alloc();
  void* const found = std::malloc(bytes == 0 ? 1 : bytes);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fastloader {
namespace {

using namespace testing;

/// While it lives, decode threads get no memory.
class OutOfMemory {
 public:
  OutOfMemory() { g_out_of_memory = true; }
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
  ~OutOfMemory() { g_out_of_memory = false; }
};

void expect_good(DecodePool& pool, const Loader& loader, const Batch& batch) {
  expect_done(pool, batch);
  EXPECT(batch->failures().empty());
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT(bytes_of(*batch, i) == decoded_alone(loader, batch->index(i), batch->key(i).seed));
  }
}

TEST(a_thread_that_begins_without_memory_fails_its_sample_and_goes_on) {
  DecodePool pool;
  const Loader loader(3, 1);
  const Batch first = loader.batch(range(0, 3));
  {
    const OutOfMemory now;
    pool.grow(1);  // its decoder cannot be made
    pool.submit(first);
    expect_done(pool, first);
  }
  EXPECT_EQ(first->failures().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first->failures()[i].position, i);
    EXPECT_EQ(first->failures()[i].reason, std::string("out of memory"));
  }
  expect_good(pool, loader, submitted(pool, loader.batch(range(0, 3))));
}

TEST(a_reason_that_there_is_no_memory_for_is_told_without) {
  DecodePool pool;
  const Loader loader(4, 1);
  const std::runtime_error told("a reason that is far too long to lie in the string itself");
  loader.source->instead(1, [&] {
    g_out_of_memory = true;
    throw told;
  });
  loader.source->instead(3, [&] { throw told; });
  pool.grow(1);
  const Batch batch = submitted(pool, loader.batch({1, 3}));
  expect_done(pool, batch);
  g_out_of_memory = false;
  EXPECT_EQ(batch->failures().size(), 2u);
  for (const DecodeBatch::Failure& failure : batch->failures()) {
    EXPECT_EQ(failure.reason, std::string("out of memory"));
  }
  expect_good(pool, loader, submitted(pool, loader.batch({0, 2})));
}

TEST(memory_that_ends_anywhere_in_a_picture_is_that_samples_error) {
  DecodePool pool;
  const Loader loader(6, 2);
  pool.grow(2);
  for (int round = 0; round < 20; ++round) {
    loader.source->instead(2, [] { g_out_of_memory = true; });
    const Batch batch = submitted(pool, loader.batch(range(0, 6)));
    expect_done(pool, batch);
    g_out_of_memory = false;
    for (const DecodeBatch::Failure& failure : batch->failures()) {
      EXPECT_EQ(failure.reason, std::string("out of memory"));
    }
    loader.source->instead(2, [] {});
    expect_good(pool, loader, submitted(pool, loader.batch(range(0, 6))));
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
