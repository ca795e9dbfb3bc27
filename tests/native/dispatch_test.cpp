#include "image/dispatch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "image/x86_features.h"

namespace fastloader {
namespace {

using namespace testing;

bool is_available(const char* name) {
  const std::vector<std::string> names = available_isa_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(scalar_is_everywhere) { EXPECT(is_available("scalar")); }

#if defined(__x86_64__)
TEST(what_the_processor_has_is_used) {
  const X86Features cpu = x86_features();
  EXPECT(is_available("avx2") ==
         (cpu.avx2 && cpu.fma && cpu.f16c && cpu.bmi && cpu.bmi2 && cpu.popcnt));
  EXPECT(is_available("avx512") == (cpu.avx512f && cpu.avx512bw && cpu.avx512vl));
  EXPECT(is_available("avx512vnni") ==
         (is_available("avx512") && cpu.avx512vbmi && cpu.avx512vnni));
}
#elif defined(__aarch64__)
TEST(neon_is_used) { EXPECT(is_available("neon")); }
#endif

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
