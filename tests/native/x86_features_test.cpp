#include "image/x86_features.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "check.h"

namespace fastloader {
namespace {

using namespace testing;

#if defined(__x86_64__)
/// What the kernel says that this processor can do: its names, and only what it saves the registers
/// of.
std::set<std::string> flags_of_the_kernel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

TEST(features_are_those_that_the_kernel_tells) {
  const std::set<std::string> flags = flags_of_the_kernel();
  EXPECT(flags.count("sse2") == 1);
  const X86Features found = x86_features();
  const auto told = [&](const char* name) { return flags.count(name) == 1; };
  EXPECT(found.popcnt == told("popcnt"));
  EXPECT(found.bmi == told("bmi1"));
  EXPECT(found.bmi2 == told("bmi2"));
  EXPECT(found.avx2 == told("avx2"));
  EXPECT(found.fma == told("fma"));
  EXPECT(found.f16c == told("f16c"));
  EXPECT(found.avx512f == told("avx512f"));
  EXPECT(found.avx512bw == told("avx512bw"));
  EXPECT(found.avx512vl == told("avx512vl"));
  EXPECT(found.avx512vbmi == told("avx512vbmi"));
  EXPECT(found.avx512vnni == told("avx512_vnni"));
}
#endif

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
