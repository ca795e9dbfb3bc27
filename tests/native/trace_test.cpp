// What threads keep for a timeline, and that it costs nothing and does no harm while off.

#include "base/trace.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "actor.h"
#include "base/thread.h"
#include "check.h"
#include "child_process.h"

namespace {

using namespace fastloader;
using namespace fastloader::testing;

struct Running {
  explicit Running(size_t room) { EXPECT(trace::start(room)); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { trace::stop(); }  // a failed test leaves none to the next
};

TEST(off_nothing_is_kept) {
  EXPECT(!trace::on());
  trace::record("early", 1, 2);
  {
    const trace::Span span("early");
  }
  const Running running(8);
  EXPECT(trace::on());
  EXPECT(trace::stop().empty());
  EXPECT(!trace::on());
  trace::record("late", 1, 2);
  EXPECT(trace::stop().empty());
}

TEST(one_at_a_time) {
  const Running running(8);
  EXPECT(!trace::start(8));
  trace::record("event", 1, 2);
  EXPECT_EQ(trace::stop().size(), size_t{1});
  EXPECT(trace::start(8));
}

TEST(spans_nest_and_bring_their_threads_name) {
  const Running running(8);
  Thread thread("fl-test", [] {
    const trace::Span outer("outer");
    const trace::Span inner("inner");
  });
  thread.join();
  const std::vector<trace::ThreadEvents> threads = trace::stop();
  EXPECT_EQ(threads.size(), size_t{1});
  EXPECT_EQ(threads[0].name, std::string("fl-test"));
  EXPECT(threads[0].thread > 0);
  EXPECT_EQ(threads[0].dropped, uint64_t{0});
  const std::vector<trace::Event>& events = threads[0].events;
  EXPECT_EQ(events.size(), size_t{2});
  EXPECT_EQ(std::string(events[0].name), std::string("inner"));
  EXPECT_EQ(std::string(events[1].name), std::string("outer"));
  EXPECT(events[1].begin <= events[0].begin && events[0].begin <= events[0].end);
  EXPECT(events[0].end <= events[1].end);
}

TEST(a_span_that_began_before_the_trace_is_left_out) {
  auto span = std::make_unique<trace::Span>("early");
  const Running running(8);
  span.reset();
  EXPECT(trace::stop().empty());
}

TEST(a_threads_events_are_bounded) {
  const Running running(4);
  for (int i = 0; i < 10; ++i) trace::record("event", i, i + 1);
  const std::vector<trace::ThreadEvents> threads = trace::stop();
  EXPECT_EQ(threads[0].events.size(), size_t{4});
  EXPECT_EQ(threads[0].events.back().begin, int64_t{3});
  EXPECT_EQ(threads[0].dropped, uint64_t{6});
}

TEST(a_thread_begins_anew_in_the_next_trace) {
  for (int64_t round = 0; round < 3; ++round) {
    const Running running(4);
    trace::record("event", round, round);
    const std::vector<trace::ThreadEvents> threads = trace::stop();
    EXPECT_EQ(threads.size(), size_t{1});
    EXPECT_EQ(threads[0].events.size(), size_t{1});
    EXPECT_EQ(threads[0].events[0].begin, round);
  }
}

TEST(traces_begin_and_end_under_threads_that_record) {
  std::atomic<bool> done{false};
  std::atomic<int> recorded{0};
  std::vector<std::unique_ptr<Actor>> actors;
  for (int i = 0; i < 3; ++i) {
    actors.push_back(std::make_unique<Actor>(
        [&] {
          while (!done) {
            const trace::Span span("event");
            ++recorded;
          }
        },
        [&] { done = true; }));
  }
  for (int round = 0; round < 50; ++round) {
    const Running running(64);
    const int before = recorded;
    while (recorded < before + 20) std::this_thread::yield();
    for (const trace::ThreadEvents& thread : trace::stop()) {
      for (const trace::Event& event : thread.events) {
        EXPECT_EQ(std::string(event.name), std::string("event"));
        EXPECT(event.begin <= event.end);
      }
    }
  }
  done = true;
  for (const auto& actor : actors) actor->join();
}

TEST(a_forked_child_has_a_trace_of_its_own) {
  const Running running(8);
  trace::record("parent", 1, 2);
  const ChildEnd end = in_forked_child([] {
    trace::record("child", 3, 4);  // does no harm
    EXPECT(trace::start(8));
    trace::record("child", 5, 6);
    const std::vector<trace::ThreadEvents> threads = trace::stop();
    EXPECT_EQ(threads.size(), size_t{1});
    EXPECT_EQ(threads[0].events.size(), size_t{1});
    EXPECT_EQ(threads[0].events[0].begin, int64_t{5});
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exit_code, 0);
  const std::vector<trace::ThreadEvents> threads = trace::stop();
  EXPECT_EQ(threads.size(), size_t{1});
  EXPECT_EQ(threads[0].events.size(), size_t{1});
}

}  // namespace

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
