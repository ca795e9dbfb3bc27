// What the sweep takes for a failure, shown with made-up cases.

#include <cstring>
#include <vector>

#include "check.h"
#include "sweep_table.h"

namespace fastloader::testing {
namespace {

FaultCase case_of(const char* function) {
  return FaultCase::parse(std::string("epoch/") + function + "/1/Unknown/once");
}

Result result_of(Heard heard) {
  Verdict verdict;
  verdict.heard = heard;
  Result result{};
  result.keep(verdict);
  return result;
}

bool sweep_of(const std::vector<std::pair<const char*, Heard>>& all) {
  std::vector<FaultCase> cases;
  std::vector<Result> results;
  for (const auto& [function, heard] : all) {
    cases.push_back(case_of(function));
    results.push_back(result_of(heard));
  }
  return print_table(cases, results.data());
}

TEST(a_function_of_which_no_case_struck_fails_the_sweep) {
  EXPECT(sweep_of({{"cudaMalloc", Heard::kThrown}, {"cudaFree", Heard::kLogged}}));
  EXPECT(!sweep_of({{"cudaMalloc", Heard::kThrown}, {"cudaFree", Heard::kNotStruck}}));
  EXPECT(!sweep_of({{"cudaFree", Heard::kNotStruck},
                    {"cudaMalloc", Heard::kThrown},
                    {"cudaFree", Heard::kNotStruck}}));
  EXPECT(sweep_of({{"cudaFree", Heard::kNotStruck}, {"cudaFree", Heard::kSilent}}));
}

/// A fault that was told by an exception which names the call.
Report struck_report() {
  Report report{};
  report.finished = true;
  report.struck = 1;
  std::strcpy(report.error, "cudaMalloc: as injected");
  return report;
}

TEST(a_leak_on_the_device_that_is_well_is_one_whichever_other_broke) {
  Report report = struck_report();
  report.left = 3;
  EXPECT(judge(case_of("cudaMalloc"), report, "").is(Bad::kLeak));
  for (bool* const broken : {&report.broken, &report.other_broken}) {
    *broken = true;
    report.left_on_well = 0;  // the three things are the broken device's
    EXPECT(!judge(case_of("cudaMalloc"), report, "").is(Bad::kLeak));
    report.left_on_well = 1;
    EXPECT(judge(case_of("cudaMalloc"), report, "").is(Bad::kLeak));
    EXPECT(!judge(case_of("cudaFree"), report, "").is(Bad::kLeak));  // its giving back was refused
    *broken = false;
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
