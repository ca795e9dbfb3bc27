#include "sweep_table.h"

#include <array>
#include <cstdio>
#include <map>
#include <string>

namespace fastloader::testing {
namespace {

struct Row {
  size_t cases = 0;
  size_t not_run = 0;
  size_t bad_cases = 0;
  std::array<size_t, kHeards> heard{};
  std::array<size_t, kBads> bad{};

  void add(const Result& result) {
    ++cases;
    if (!result.run) {
      ++not_run;
      return;
    }
    ++heard[static_cast<size_t>(result.heard)];
    if (result.bad != 0) ++bad_cases;
    for (size_t kind = 0; kind < kBads; ++kind) bad[kind] += result.bad >> kind & 1;
  }

  void print(const std::string& name) const {
    std::printf("%-44s %6zu", name.c_str(), cases);
    for (const size_t count : {heard[1], heard[2], heard[3], heard[4], heard[5], heard[0]}) {
      std::printf(" %8zu", count);
    }
    std::printf(" %5zu", bad_cases);
    for (size_t kind = 0; kind < kBads; ++kind) {
      if (bad[kind] > 0) std::printf("  %zu %s", bad[kind], kBadNames[kind]);
    }
    std::printf("\n");
  }
};

void print_head(const std::string& name) {
  std::printf("\n%-44s %6s %8s %8s %8s %8s %8s %8s %5s  by kind\n", name.c_str(), "cases", "thrown",
              "logged", "reported", "stream", "silent", "unstruck", "bad");
}

}  // namespace

void Result::keep(const Verdict& verdict) {
  heard = verdict.heard;
  bad = 0;
  for (const auto& [kind, what] : verdict.bad) bad |= 1u << static_cast<unsigned>(kind);
  std::snprintf(why, sizeof why, "%s", verdict.bad.empty() ? "" : verdict.bad[0].second.c_str());
  run = true;
}

bool print_table(const std::vector<FaultCase>& cases, const Result* results) {
  std::map<std::string, std::map<std::string, Row>> by_scenario;
  std::map<std::string, Row> by_function;
  struct Example {
    size_t count = 0;
    size_t first = 0;
  };
  std::map<std::string, Example> complaints;
  Row all;
  for (size_t i = 0; i < cases.size(); ++i) {
    const FaultCase& one = cases[i];
    std::string function = one.fault.function;
    if (!one.fallback.empty()) function += "+" + one.fallback;
    by_scenario[one.scenario][function].add(results[i]);
    by_function[function].add(results[i]);
    all.add(results[i]);
    for (size_t kind = 0; kind < kBads; ++kind) {
      if ((results[i].bad >> kind & 1) == 0) continue;
      Example& example = complaints[std::string(kBadNames[kind]) + " by " + function];
      if (example.count++ == 0) example.first = i;
    }
  }
  for (const auto& [scenario, functions] : by_scenario) {
    print_head(scenario);
    for (const auto& [function, row] : functions) row.print(function);
  }
  print_head("all scenarios");
  for (const auto& [function, row] : by_function) row.print(function);
  all.print("all functions");
  if (!complaints.empty()) std::printf("\nkinds of bad cases:\n");
  for (const auto& [what, example] : complaints) {
    std::printf("%5zu %s, as in %s: %.120s\n", example.count, what.c_str(),
                cases[example.first].name().c_str(), results[example.first].why);
  }
  if (all.bad_cases > 0) std::printf("\nbad cases, each to be run again by its name:\n");
  for (size_t i = 0; i < cases.size(); ++i) {
    if (results[i].bad != 0) std::printf("%s: %.80s\n", cases[i].name().c_str(), results[i].why);
  }
  size_t untested = 0;
  for (const auto& [function, row] : by_function) {
    // Cases that were not run fail the sweep by themselves.
    if (row.not_run > 0 || row.heard[0] < row.cases) continue;
    if (untested++ == 0) std::printf("\nnothing was tested of:\n");
    std::printf("%s, of which none of %zu cases struck\n", function.c_str(), row.cases);
  }
  const size_t struck = all.cases - all.not_run - all.heard[0];
  std::printf("\n%zu cases: %zu struck, %zu bad, %zu not struck, %zu not run\n", all.cases, struck,
              all.bad_cases, all.heard[0], all.not_run);
  return all.bad_cases == 0 && all.not_run == 0 && untested == 0 && struck > 0;
}

}  // namespace fastloader::testing
