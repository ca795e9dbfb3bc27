#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fault_case.h"

namespace fastloader::testing {

/// Why a case is bad.
enum class Bad : uint8_t {
  kWrongBatch,
  kLateWrite,
  kEarlyWrite,
  kMisuse,  ///< what no CUDA program may do, kernels on garbage among it
  kHang,
  kCrash,
  kLeak,
  kMisnamed,     ///< the error names another call than the one that failed
  kForgotten,    ///< the error was told once and not again
  kSilent,       ///< nothing tells of the fault
  kOtherDevice,  ///< a call left another device selected than it found
  kNext,         ///< the prefetcher that came next failed, or worked where it could not
};
constexpr size_t kBads = 12;
/// One word each, for the tables.
extern const std::array<const char*, kBads> kBadNames;

/// By what the user hears of the fault.
enum class Heard : uint8_t { kNotStruck, kThrown, kLogged, kReported, kByStream, kSilent };
constexpr size_t kHeards = 6;
extern const std::array<const char*, kHeards> kHeardNames;

struct Verdict {
  Heard heard = Heard::kNotStruck;
  std::vector<std::pair<Bad, std::string>> bad;

  bool is(Bad kind) const {
    return std::any_of(bad.begin(), bad.end(),
                       [kind](const auto& each) { return each.first == kind; });
  }
};

/// `ended`: empty, or how the case's process ended if not by itself: "hang" or another word.
Verdict judge(const FaultCase& one, const Report& report, const std::string& ended);

/// Whether silence is right for this function whenever it fails, so that nothing need be waited
/// for.
bool is_always_silent(const std::string& function);

}  // namespace fastloader::testing
