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

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
