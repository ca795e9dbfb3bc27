// What becomes of the process's pool when the process forks or exits.

#include <atomic>
#include <cstdlib>
#include <string>

#include "child_process.h"
#include "decode_pool_test.h"
#include "image/dispatch.h"

namespace fastloader {
namespace {

using namespace testing;

TEST(there_is_one_pool) {
  DecodePool* seen[4] = {};
  {
    std::vector<std::unique_ptr<Actor>> actors;
    for (auto& one : seen) {
      actors.push_back(std::make_unique<Actor>([&one] { one = &DecodePool::shared(); }));
    }
    for (const auto& actor : actors) actor->join();
  }
  for (const DecodePool* one : seen) EXPECT(one == &DecodePool::shared());
}

TEST(a_forked_child_gets_a_pool_of_its_own) {
  if (FASTLOADER_TSAN) throw Skip{"ThreadSanitizer forbids threads in a forked child"};
  DecodePool& pool = DecodePool::shared();
  const Loader loader(8, 1);
  const Loader other(8, 2);
  // The gates have a mutex, which a thread of the parent may hold at the fork: the child has
  // others.
  const Loader inherited(8, 2);
  loader.source->hold({0});
  pool.grow(2);
  Batch finished = submitted(pool, loader.batch({3}));
  expect_done(pool, finished);
  const Batch batch = submitted(pool, loader.batch({0, 1, 2}));
  loader.source->wait_begun(2);  // the quota is used up, in the parent
  const ChildEnd end = in_forked_child([&] {
    DecodePool& mine = DecodePool::shared();
    if (&mine == &pool || mine.threads() != 0) _exit(1);
    mine.cancel(*batch);  // does not wait for a thread that is not here
    bool refused = false;
    try {
      mine.wait(*batch, Clock::now());
    } catch (const Error&) {
      refused = true;
    }
    if (!refused) _exit(2);
    if (!done(mine, finished)) _exit(3);
    finished.reset();
    mine.grow(2);
    // The inherited quota counts no threads, whether the loader was busy or not.
    for (const auto& quota : {loader.quota, other.quota}) {
      expect_done(mine, submitted(mine, inherited.batch({4, 5, 6}, {7}, quota)));
    }
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT(&DecodePool::shared() == &pool);
  loader.source->open_all();
  expect_done(pool, batch);
}

TEST(the_process_exits_while_threads_decode) {
  for (int i = 0; i < 5; ++i) {
    const ChildEnd end = in_new_process("--exit-while-decoding");
    EXPECT_EQ(end.signal, 0);
    EXPECT_EQ(end.exit_code, 0);
  }
}

TEST(a_wrong_instruction_set_is_told_to_the_caller) {
  const ChildEnd end = in_new_process("--wrong-isa");
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
}

int exit_while_decoding() {
  static const Loader* const loader = new Loader(16, 4);  // nor does Python destroy everything
  DecodePool& pool = DecodePool::shared();
  pool.grow(4);
  for (int i = 0; i < 200; ++i) pool.submit(loader->batch(range(0, 16)));
  loader->source->hold({3});
  loader->source->wait_begun(40);
  std::exit(0);  // some decode, some stand at a gate
}

int wrong_isa() {
  setenv("FASTLOADER_FORCE_ISA", "mmx", 1);
  DecodePool pool;
  try {
    pool.grow(2);
  } catch (const InvalidArgument& error) {
    return std::string(error.what()).find("mmx") == std::string::npos ? 2 : 0;
  }
  return 1;
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--exit-while-decoding") return fastloader::exit_while_decoding();
  if (mode == "--wrong-isa") return fastloader::wrong_isa();
  return fastloader::testing::run_all_tests(argc, argv);
}
