#pragma once

// The smallest test frame that serves: TEST(name) { EXPECT(...); } and run_all_tests() in main.
// A failed EXPECT ends its test; the process exit code counts the failed tests.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace fastloader::testing {

struct Failure {
  std::string what;
};

struct Skip {
  std::string why;
};

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Register {
  Register(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

/// Runs every test whose name contains argv[1] (all without it), argv[2] times (once without it).
inline int run_all_tests(int argc, char** argv) {
  const char* only = argc > 1 ? argv[1] : "";
  const int times = argc > 2 ? std::atoi(argv[2]) : 1;
  int failed = 0;
  int passed = 0;
  int skipped = 0;
  std::string why_skipped;
  for (int round = 0; round < times; ++round) {
    for (const Test& test : tests()) {
      if (std::strstr(test.name, only) == nullptr) continue;
      try {
        test.body();
        ++passed;
        if (times == 1) std::printf("ok    %s\n", test.name);
      } catch (const Failure& failure) {
        ++failed;
        std::printf("FAIL  %s: %s\n", test.name, failure.what.c_str());
      } catch (const Skip& skip) {
        ++skipped;
        why_skipped = skip.why;
        std::printf("skip  %s: %s\n", test.name, skip.why.c_str());
      } catch (const std::exception& error) {
        ++failed;
        std::printf("FAIL  %s: uncaught exception: %s\n", test.name, error.what());
      }
      std::fflush(stdout);
    }
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  if (passed + failed + skipped == 0) {
    std::printf("no test matches '%s'\n", only);
    return 1;
  }
  const char* require_cuda = std::getenv("FASTLOADER_REQUIRE_CUDA");
  if (skipped > 0 && require_cuda != nullptr && std::strcmp(require_cuda, "1") == 0) {
    std::printf("FASTLOADER_REQUIRE_CUDA=1: skips count as failures: %s\n", why_skipped.c_str());
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace fastloader::testing

#define TEST(name)                                                           \
  static void name();                                                        \
  static const ::fastloader::testing::Register register_##name(#name, name); \
  static void name()

#define EXPECT(condition)                                                                 \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      throw ::fastloader::testing::Failure{std::string(__FILE__) + ":" +                  \
                                           std::to_string(__LINE__) + ": " + #condition}; \
    }                                                                                     \
  } while (false)

#define EXPECT_EQ(left, right)                                                         \
  do {                                                                                 \
    const auto& left_value = (left);                                                   \
    const auto& right_value = (right);                                                 \
    if (!(left_value == right_value)) {                                                \
      std::ostringstream text;                                                         \
      text << __FILE__ << ":" << __LINE__ << ": " << #left << " == " << #right << " (" \
           << left_value << " vs " << right_value << ")";                              \
      throw ::fastloader::testing::Failure{text.str()};                                \
    }                                                                                  \
  } while (false)

/// Expects `statement` to throw `Type` with `part` in its message.
#define EXPECT_THROW(statement, Type, part)                                               \
  do {                                                                                    \
    bool thrown = false;                                                                  \
    try {                                                                                 \
      statement;                                                                          \
    } catch (const Type& error) {                                                         \
      thrown = true;                                                                      \
      if (std::string(error.what()).find(part) == std::string::npos) {                    \
        throw ::fastloader::testing::Failure{std::string(__FILE__) + ":" +                \
                                             std::to_string(__LINE__) + ": message '" +   \
                                             error.what() + "' lacks '" + (part) + "'"};  \
      }                                                                                   \
    }                                                                                     \
    if (!thrown) {                                                                        \
      throw ::fastloader::testing::Failure{std::string(__FILE__) + ":" +                  \
                                           std::to_string(__LINE__) + ": " + #statement + \
                                           " did not throw " + #Type};                    \
    }                                                                                     \
  } while (false)
