// Every call of every CUDA function that the scenarios make fails, in every way; see README.md.
//
//   cuda_fault_sweep all                 every case
//   cuda_fault_sweep sample COUNT SEED   so many, the same for the same numbers; of every function
//   cuda_fault_sweep NAME                one case, and what came of it
//
// FASTLOADER_SWEEP_WORKERS: how many cases run at a time; twice the cores otherwise.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "case_process.h"
#include "sweep_table.h"

namespace fastloader::testing {
namespace {

const std::vector<std::string>& scenario_names() {
  static const std::vector<std::string> all{"epoch", "cancel", "streams", "device1", "parts"};
  return all;
}

/// In the order of scenario and function. A few calls depend on who comes first, so that three
/// rehearsals are taken together.
std::vector<std::vector<FaultCase>> all_cases() {
  std::vector<std::vector<FaultCase>> groups;
  for (const std::string& scenario : scenario_names()) {
    Calls calls;
    for (int i = 0; i < 3; ++i) {
      for (const auto& [function, count] : rehearse_in_process(scenario)) {
        calls[function] = std::max(calls[function], count);
      }
    }
    std::map<std::string, std::vector<FaultCase>> of;
    for (FaultCase& one : cases_of(scenario, calls)) {
      of[one.fault.function + one.fallback].push_back(std::move(one));
    }
    for (auto& [function, cases] : of) groups.push_back(std::move(cases));
  }
  return groups;
}

/// Of each group in turn, so that a function that is called twice is tried as well as one that is
/// called at every step.
std::vector<FaultCase> sample(std::vector<std::vector<FaultCase>> groups, size_t count,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t most = 0;
  for (auto& group : groups) {
    for (size_t i = group.size(); i > 1; --i) std::swap(group[i - 1], group[random() % i]);
    most = std::max(most, group.size());
  }
  std::vector<FaultCase> chosen;
  for (size_t turn = 0; turn < most && chosen.size() < count; ++turn) {
    for (auto& group : groups) {
      if (turn < group.size() && chosen.size() < count) chosen.push_back(group[turn]);
    }
  }
  return chosen;
}

/// Where something hangs much may hang, a minute each time: the cases behind are not run.
constexpr size_t kMostHangs = 10;

/// What the workers share. Relaxed suffices, since a number is all that is handed out. The end of
/// the workers' processes orders the rest.
struct Progress {
  std::atomic<size_t> next{0};
  std::atomic<size_t> hangs{0};
};
static_assert(std::atomic<size_t>::is_always_lock_free, "processes share it");

/// Each worker takes the next case until there is none.
void work(const std::vector<FaultCase>& cases, Progress* progress, Result* results) {
  auto* report = static_cast<Report*>(shared_memory(sizeof(Report)));
  while (progress->hangs.load(std::memory_order_relaxed) < kMostHangs) {
    const size_t index = progress->next.fetch_add(1, std::memory_order_relaxed);
    if (index >= cases.size()) return;
    const Verdict verdict = run_in_process(cases[index], report, false);
    results[index].keep(verdict);
    if (verdict.is(Bad::kHang)) progress->hangs.fetch_add(1, std::memory_order_relaxed);
  }
}

unsigned worker_count() {
  const char* text = std::getenv("FASTLOADER_SWEEP_WORKERS");
  if (text != nullptr) return static_cast<unsigned>(std::max(1, std::atoi(text)));
  // Twice the cores: a case mostly waits for the slow bus.
  return 2 * std::max(1u, std::thread::hardware_concurrency());
}

int sweep(const std::vector<FaultCase>& cases) {
  auto* progress = new (shared_memory(sizeof(Progress))) Progress;
  auto* results = static_cast<Result*>(shared_memory(cases.size() * sizeof(Result)));
  std::vector<pid_t> workers;
  for (unsigned i = 0; i < worker_count(); ++i) {
    std::fflush(nullptr);
    const pid_t worker = fork();
    if (worker == 0) {
      work(cases, progress, results);
      _exit(0);
    }
    workers.push_back(worker);
  }
  for (const pid_t worker : workers) waitpid(worker, nullptr, 0);
  return print_table(cases, results) ? 0 : 1;
}

int run_one(const std::string& name) {
  const FaultCase one = FaultCase::parse(name);
  auto* report = static_cast<Report*>(shared_memory(sizeof(Report)));
  const Verdict verdict = run_in_process(one, report, true);
  std::printf("%s: %s, struck %u times, context %s, %u batches delivered, %u things left\n",
              name.c_str(), kHeardNames[static_cast<size_t>(verdict.heard)], report->struck,
              report->broken ? "broken" : "well", report->delivered, report->left);
  const auto say = [](const char* what, const char* text) {
    if (text[0] != 0) std::printf("  %s: %s\n", what, text);
  };
  say("error", report->error);
  say("thrown by", report->where);
  say("reported", report->told);
  say("logged", report->logged);
  say("harm", report->harm);
  say("misuse", report->misuse);
  say("the next prefetcher", report->next);
  say("strikes", report->strikes);
  for (const auto& [kind, why] : verdict.bad) {
    std::printf("  BAD, %s: %s\n", kBadNames[static_cast<size_t>(kind)], why.c_str());
  }
  return verdict.bad.empty() && verdict.heard != Heard::kNotStruck ? 0 : 1;
}

int main_of(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  scenario_batches();  // here, so that no case has to make them
  if (what == "all" && argc == 2) {
    std::vector<FaultCase> cases;
    for (const auto& group : all_cases()) cases.insert(cases.end(), group.begin(), group.end());
    return sweep(cases);
  }
  if (what == "sample" && argc == 4) {
    return sweep(sample(all_cases(), std::strtoull(argv[2], nullptr, 10),
                        std::strtoull(argv[3], nullptr, 10)));
  }
  if (argc == 2 && what.find('/') != std::string::npos) return run_one(what);
  std::fprintf(stderr, "usage: cuda_fault_sweep all | sample COUNT SEED | CASE\n");
  return 2;
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) {
  try {
    return fastloader::testing::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_fault_sweep: %s\n", error.what());
    return 2;
  }
}
