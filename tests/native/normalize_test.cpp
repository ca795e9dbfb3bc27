#include "image/normalize/normalize.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/dispatch.h"
#include "image/float_round.h"
#include "image/normalize/kernel.h"
#include "normalize_reference.h"

namespace fastloader {
namespace {

using namespace testing;

/// Memory between two pages that may not be touched.
class Fenced {
 public:
  Fenced() {
    void* mapped = mmap(nullptr, kBytes + 2 * kFence, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    begin_ = static_cast<uint8_t*>(mapped) + kFence;
    if (mprotect(mapped, kFence, PROT_NONE) != 0) std::abort();
    if (mprotect(begin_ + kBytes, kFence, PROT_NONE) != 0) std::abort();
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(begin_ - kFence, kBytes + 2 * kFence); }

  uint8_t* begin() const { return begin_; }
  uint8_t* last(size_t bytes) const { return begin_ + kBytes - bytes; }

 private:
  static constexpr size_t kFence = 65536;  // a multiple of every page size
  static constexpr size_t kBytes = 4 * kFence;
  uint8_t* begin_ = nullptr;
};

constexpr size_t kGuard = 128;
constexpr uint8_t kPoisons[] = {0xa5, 0x5a};

/// Runs `body(in, out)` with `out` at `offset` from a 64-byte boundary and says whether exactly the
/// expected bytes were written, and nothing around them.
template <class Body>
bool writes_exactly(const Expected& expected, const uint8_t* in, size_t offset, uint8_t poison,
                    Body body) {
  static std::vector<uint8_t> memory;
  const size_t bytes = expected.out.size();
  memory.assign(bytes + 2 * kGuard + 64 + offset, poison);
  uint8_t* out = memory.data() + kGuard;
  out += (64 - reinterpret_cast<uintptr_t>(out) % 64) % 64 + offset;
  body(in, out);
  if (bytes != 0 && std::memcmp(out, expected.out.data(), bytes) != 0) return false;
  const auto untouched = [poison](uint8_t byte) { return byte == poison; };
  return std::all_of(memory.data(), out, untouched) &&
         std::all_of(out + bytes, memory.data() + memory.size(), untouched);
}

/// All implementations, with the input against the fence behind it and in front of it.
void check_all_isas(const NormalizeSpec& spec) {
  static const Fenced fenced;
  static const std::vector<std::string> names = available_isa_names();
  const Expected expected(spec);
  const size_t bytes = expected.in.size();
  struct Placement {
    uint8_t* in;
    size_t out_offset;
  };
  const Placement placements[] = {{fenced.begin(), 0},
                                  {fenced.last(bytes), bytes % 61},
                                  {fenced.begin() + 1 + bytes % 13, 1},
                                  {fenced.last(bytes), 4}};
  for (const Placement& placement : placements) {
    if (bytes != 0) std::memcpy(placement.in, expected.in.data(), bytes);
    for (const std::string& name : names) {
      const bool good = writes_exactly(
          expected, placement.in, placement.out_offset, kPoisons[0],
          [&](const uint8_t* in, uint8_t* out) { normalize_with_isa(name, spec, in, out); });
      if (!good) throw Failure{name + ": " + describe(spec)};
    }
  }
}

/// In a child process, because an implementation is chosen once per process: nothing in this file
/// may call normalize() or active_isa() in the parent.
template <class Body>
bool holds_with_forced_isa(const char* name, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    if (name == nullptr) unsetenv("FASTLOADER_FORCE_ISA");
    if (name != nullptr) setenv("FASTLOADER_FORCE_ISA", name, 1);
    _exit(body() ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Shape {
  size_t height;
  size_t width;
};

// ---- Tests --------------------------------------------------------------------------------------

TEST(sixteen_bit_rounding_is_right_at_every_number_and_midpoint) {
  for (FloatType type : {FloatType::kFloat16, FloatType::kBFloat16}) {
    const std::vector<double>& all = numbers_of(type);
    const auto convert = [type](float value) {
      return uint32_t{type == FloatType::kFloat16 ? float16_bits(value) : bfloat16_bits(value)};
    };
    const auto check = [&](float value, size_t bits) {
      EXPECT_EQ(convert(value), bits);
      EXPECT_EQ(convert(-value), bits | 0x8000u);
      EXPECT_EQ(reference_bits(value, type), bits);
    };
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      const float number = static_cast<float>(all[i]);
      const float middle = static_cast<float>((all[i] + all[i + 1]) / 2);
      check(number, i);
      check(std::nextafter(number, kInfinity), i);
      check(std::nextafter(middle, 0.0f), i);
      check(middle, i + i % 2);
      check(std::nextafter(middle, kInfinity), i + 1);
      if (i + 2 < all.size()) {
        check(std::nextafter(static_cast<float>(all[i + 1]), 0.0f), i + 1);
      }
    }
    check(kInfinity, all.size() - 1);
    check(std::numeric_limits<float>::max(), all.size() - 1);
    const uint32_t nan = convert(std::numeric_limits<float>::quiet_NaN());
    EXPECT((nan & 0x7fffu) > all.size() - 1);
    uint32_t bits = 1;
    for (int i = 0; i < 500000; ++i) {
      bits = bits * 1664525u + 1013904223u;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      if (!std::isnan(value)) EXPECT_EQ(convert(value), reference_bits(value, type));
    }
  }
}

TEST(every_isa_is_exact_at_every_width) {
  for_each_kind([](int channels, Layout in, Layout out, FloatType type) {
    for (size_t width = 1; width <= 67; ++width) {
      for (size_t batch : {size_t{1}, size_t{3}}) {
        check_all_isas(make_spec(batch, 1 + width % 3, width, channels, in, out, type));
      }
    }
  });
}

TEST(every_isa_is_exact_for_all_values) {
  for_each_kind([](int channels, Layout in, Layout out, FloatType type) {
    for (Shape shape : {Shape{16, 16}, Shape{1, 771}, Shape{41, 39}}) {
      for (Values values : {Values::kImageNet, Values::kExtreme, Values::kTies}) {
        check_all_isas(make_spec(2, shape.height, shape.width, channels, in, out, type, values));
      }
    }
  });
}

TEST(nothing_is_written_when_there_is_nothing) {
  for_each_kind([](int channels, Layout in, Layout out, FloatType type) {
    check_all_isas(make_spec(0, 5, 7, channels, in, out, type));
    check_all_isas(make_spec(3, 0, 7, channels, in, out, type));
    check_all_isas(make_spec(3, 5, 0, channels, in, out, type));
    EXPECT_EQ(make_normalize_grid(make_spec(0, 5, 7, channels, in, out, type)).threads(),
              size_t{0});
    EXPECT_EQ(make_normalize_grid(make_spec(3, 0, 7, channels, in, out, type)).threads(),
              size_t{0});
  });
}

TEST(divisor_divides) {
  constexpr uint32_t kEnd = uint32_t{1} << 31;
  const auto check = [](uint32_t divisor) {
    const Divisor by(divisor);
    EXPECT_EQ(by.value(), divisor);
    for (uint32_t near : {uint32_t{0}, divisor, kEnd / 2, kEnd - kEnd % divisor, kEnd}) {
      for (uint32_t number = near < 3 ? 0 : near - 3; number < kEnd && number < near + 3;
           ++number) {
        EXPECT_EQ(by.quotient(number), number / divisor);
      }
    }
  };
  for (uint32_t divisor = 1; divisor < 5000; ++divisor) check(divisor);
  for (uint32_t power = 1; power < kEnd; power *= 2) {
    for (uint32_t divisor = power < 4 ? 1 : power - 3; divisor <= power + 3; ++divisor) {
      check(divisor);
    }
  }
  check(kEnd - 1);
  check(kEnd);
}

TEST(kernel_body_over_its_grid_is_exact) {
  static const Fenced fenced;
  for_each_kind([](int channels, Layout in, Layout out, FloatType type) {
    for (Shape shape : {Shape{1, 1}, Shape{3, 5}, Shape{16, 16}, Shape{17, 31}, Shape{24, 43},
                        Shape{1, 1000}, Shape{32, 40}}) {
      for (size_t offset : {size_t{0}, bytes_per_element(type)}) {
        const Values values = offset == 0 ? Values::kImageNet : Values::kExtreme;
        const NormalizeSpec spec =
            make_spec(3, shape.height, shape.width, channels, in, out, type, values);
        const Expected expected(spec);
        const NormalizeGrid grid = make_normalize_grid(spec);
        for (uint8_t* start : {fenced.begin(), fenced.last(expected.in.size())}) {
          std::memcpy(start, expected.in.data(), expected.in.size());
          for (uint8_t poison : kPoisons) {
            const auto body = [&](const uint8_t* from, uint8_t* to) {
              visit_normalize_kernel(spec, [&](auto kernel) {
                for (size_t thread = 0; thread < grid.threads(); ++thread) {
                  kernel(grid, from, to, thread);
                }
              });
            };
            if (!writes_exactly(expected, start, offset, poison, body)) {
              throw Failure{describe(spec)};
            }
          }
        }
      }
    }
  });
}

TEST(kernel_body_writes_every_element_once) {
  for_each_kind([](int channels, Layout in, Layout out, FloatType type) {
    for (Shape shape : {Shape{7, 9}, Shape{15, 20}}) {
      const NormalizeSpec spec = make_spec(2, shape.height, shape.width, channels, in, out, type);
      const NormalizeGrid grid = make_normalize_grid(spec);
      const std::vector<uint8_t> from = Expected(spec).in;
      struct alignas(16) Chunk {
        uint8_t bytes[16];
      };
      std::vector<Chunk> memory(spec.out_bytes() / sizeof(Chunk) + 1);
      uint8_t* to = memory[0].bytes;
      std::vector<int> writes(spec.out_bytes());
      std::vector<bool> written(spec.out_bytes());
      visit_normalize_kernel(spec, [&](auto kernel) {
        for (size_t thread = 0; thread < grid.threads(); ++thread) {
          std::fill(written.begin(), written.end(), false);
          for (uint8_t poison : kPoisons) {  // no byte equals both
            std::memset(to, poison, spec.out_bytes());
            kernel(grid, from.data(), to, thread);
            for (size_t i = 0; i < spec.out_bytes(); ++i) {
              if (to[i] != poison) written[i] = true;
            }
          }
          for (size_t i = 0; i < spec.out_bytes(); ++i) writes[i] += written[i] ? 1 : 0;
        }
      });
      EXPECT(std::all_of(writes.begin(), writes.end(), [](int count) { return count == 1; }));
    }
  });
}

TEST(the_isa_can_be_forced) {
  const std::vector<std::string> names = available_isa_names();
  EXPECT_EQ(names.back(), std::string("scalar"));
  EXPECT(holds_with_forced_isa(nullptr, [&] { return active_isa_name() == names.front(); }));
  EXPECT(holds_with_forced_isa("", [&] { return active_isa_name() == names.front(); }));
  const NormalizeSpec spec =
      make_spec(2, 9, 31, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat16);
  const Expected expected(spec);
  for (const std::string& name : names) {
    EXPECT(holds_with_forced_isa(name.c_str(), [&] {
      std::vector<uint8_t> out(expected.out.size());
      normalize(spec, expected.in.data(), out.data());
      return active_isa_name() == name && out == expected.out;
    }));
  }
}

TEST(an_isa_that_is_not_there_is_an_error) {
  const auto complains = [] {
    try {
      active_isa();
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      for (const std::string& name : available_isa_names()) {
        if (text.find(name) == std::string::npos) return false;
      }
      return text.find("FASTLOADER_FORCE_ISA=") != std::string::npos;
    }
    return false;
  };
  for (const char* name : {"sse9", "AVX2", "scalar "}) {
    EXPECT(holds_with_forced_isa(name, complains));
  }
#if defined(__x86_64__)
  EXPECT(holds_with_forced_isa("neon", complains));
#else
  EXPECT(holds_with_forced_isa("avx2", complains));
#endif
  EXPECT_THROW(isa_by_name("sse9"), InvalidArgument, "scalar");
}

TEST(validate_refuses_what_can_never_work) {
  NormalizeSpec spec = make_spec(1, 2, 2, 3, Layout::kNhwc, Layout::kNchw, FloatType::kFloat32);
  validate(spec);
  spec.scale[3] = std::numeric_limits<float>::quiet_NaN();  // of a channel that is not there
  validate(spec);
  for (int channels : {-1, 0, 5, 1000}) {
    spec.channels = channels;
    EXPECT_THROW(validate(spec), InvalidArgument, std::to_string(channels));
    EXPECT_THROW(normalize_with_isa("scalar", spec, nullptr, nullptr), InvalidArgument, "channels");
  }
  spec.channels = 4;
  EXPECT_THROW(validate(spec), InvalidArgument, "channel 3");
  spec.channels = 3;
  spec.bias[1] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(validate(spec), InvalidArgument, "channel 1");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
