#include "image/normalize/augment.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "augment_reference.h"
#include "base/error.h"
#include "check.h"
#include "image/normalize/augment_kernel.h"

namespace fastloader {
namespace {

using namespace testing;

constexpr size_t kGuard = 64;
constexpr uint8_t kPoison = 0xa5;

/// Runs `body(records, in, out)` and expects exactly the expected bytes to be written.
template <class Body>
void expect_written(const AugmentCase& test, Body body) {
  const std::vector<uint8_t> packed = test.records();
  // Aligned to 16 bytes, as on a device.
  std::vector<uint64_t> records((packed.size() + 15) / 16 * 2 + 2);
  uint64_t* aligned = records.data();
  if (reinterpret_cast<uintptr_t>(aligned) % 16 != 0) ++aligned;
  std::memcpy(aligned, packed.data(), packed.size());
  std::vector<uint8_t> memory(test.out.size() + 2 * kGuard + 16, kPoison);
  uint8_t* out = memory.data() + kGuard;
  out += (16 - reinterpret_cast<uintptr_t>(out) % 16) % 16;
  body(aligned, test.in.data(), out);
  if (!test.out.empty() && std::memcmp(out, test.out.data(), test.out.size()) != 0) {
    throw Failure{describe(test.spec)};
  }
  const auto untouched = [](uint8_t byte) { return byte == kPoison; };
  EXPECT(std::all_of(memory.data(), out, untouched));
  EXPECT(std::all_of(out + test.out.size(), memory.data() + memory.size(), untouched));
}

TEST(the_kernel_and_the_cpu_give_the_definition) {
  for_each_augment_case([](const AugmentCase& test) {
    expect_written(test, [&](const void* records, const uint8_t* in, uint8_t* out) {
      const AugmentGrid grid = make_augment_grid(test.spec);
      visit_augment_kernel(test.spec, [&](auto kernel) {
        for (size_t thread = grid.threads(); thread-- > 0;) {
          kernel(grid, kNormalTable, records, in, out, thread);
        }
      });
    });
    expect_written(test, [&](const void* records, const uint8_t* in, uint8_t* out) {
      augment(test.spec, records, in, out);
    });
  });
}

/// Two warps that write the same byte would race on a GPU, also where they write the same value.
TEST(each_byte_is_written_by_one_warp) {
  size_t looked_at = 0;
  for_each_augment_case([&](const AugmentCase& test) {
    const AugmentGrid grid = make_augment_grid(test.spec);
    const size_t warps = grid.threads() / kNormalizeWarp;
    if (warps < 2 || warps * test.out.size() > 300'000) return;
    ++looked_at;
    std::vector<uint8_t> writers(test.out.size());
    for (size_t warp = 0; warp < warps; ++warp) {
      std::vector<uint8_t> written(test.out.size());
      // A value may look like one poison, not like both.
      for (const uint8_t poison : {uint8_t{0xa5}, uint8_t{0x5a}}) {
        std::vector<uint64_t> out(test.out.size() / 8 + 3);
        uint8_t* aligned = reinterpret_cast<uint8_t*>(out.data());
        aligned += (16 - reinterpret_cast<uintptr_t>(aligned) % 16) % 16;
        std::memset(aligned, poison, test.out.size());
        std::vector<uint64_t> records(test.spec.record_bytes() / 8 + 1);
        const std::vector<uint8_t> packed = test.records();
        std::memcpy(records.data(), packed.data(), packed.size());
        visit_augment_kernel(test.spec, [&](auto kernel) {
          for (size_t lane = 0; lane < kNormalizeWarp; ++lane) {
            kernel(grid, kNormalTable, records.data(), test.in.data(), aligned,
                   warp * kNormalizeWarp + lane);
          }
        });
        for (size_t i = 0; i < written.size(); ++i) written[i] |= aligned[i] != poison;
      }
      for (size_t i = 0; i < written.size(); ++i) {
        writers[i] = static_cast<uint8_t>(writers[i] + written[i]);
      }
    }
    EXPECT(std::all_of(writers.begin(), writers.end(), [](uint8_t count) { return count == 1; }));
  });
  EXPECT(looked_at > 1000);
}

TEST(the_table_is_the_normal_distribution) {
  for (size_t i = 0; i < kNormalTableSize; ++i) {
    const double z = std::ldexp(kNormalTable[i], -16);
    const double upper = std::erfc(z / std::sqrt(2.0)) / 2;
    const double wanted = 0.5 - (static_cast<double>(i) + 0.5) / 4096;
    // Half of the unit 2^-16 of the table, times the density.
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
    EXPECT(std::fabs(upper - wanted) <= 0x1.001p-17 * density + 1e-12);
  }
}

AugmentCase some_case(Blend blend) {
  std::mt19937 random(1);
  return make_augment_case(make_spec(3, 5, 4, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16),
                           Fill::kZero, blend, 2, random);
}

TEST(specs_that_can_never_work_are_refused) {
  AugmentSpec spec = some_case(Blend::kFloats).spec;
  validate(spec);
  spec.in_batch = 6;
  EXPECT_THROW(validate(spec), InvalidArgument, "6 images go in and 3 come out");
  spec.blend = Blend::kBytes;
  validate(spec);
  spec.normalize.height = size_t{1} << 20;
  spec.normalize.width = 683;  // 3 * 683 * 2^20 is just above 2^31
  EXPECT_THROW(validate(spec), InvalidArgument, "2^31");
  spec.normalize.width = 682;
  validate(spec);
  spec.normalize.height = spec.normalize.width = size_t{1} << 40;
  EXPECT_THROW(validate(spec), InvalidArgument, "2^31");
  spec.normalize.channels = 5;
  EXPECT_THROW(validate(spec), InvalidArgument, "channels");
}

TEST(records_that_lead_outside_are_refused) {
  const auto refused = [](auto change, const char* words) {
    AugmentCase test = some_case(Blend::kFloats);
    change(test.mix[1]);
    std::vector<uint8_t> out(test.out.size());
    const std::vector<uint8_t> records = test.records();
    EXPECT_THROW(augment(test.spec, records.data(), test.in.data(), out.data()), InvalidArgument,
                 words);
  };
  refused([](MixRecord& mix) { mix.own = 3; }, "record 1 mixes images 3");
  refused([](MixRecord& mix) { mix.partner = 3; }, "of a batch of 3");
  refused([](MixRecord& mix) { mix.boxes = 3; }, "3 boxes; there is room for 2");
  refused([](MixRecord& mix) { mix.own_weight = 1, mix.partner_weight = 0.5f; }, "add up to 1");
  refused([](MixRecord& mix) { mix.own_weight = -0.5f, mix.partner_weight = 1.5f; }, "-0.5");
  refused([](MixRecord& mix) { mix.own_weight = std::nanf(""); }, "nan");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
