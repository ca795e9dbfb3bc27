#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_emulated.h"
#include "scenario.h"

namespace fastloader::testing {

/// One scenario with one fault in it, or with a fault and another one in the call that stands in.
///
/// The name says all: SCENARIO/FUNCTION/NTH/ERROR/once|2x|3x|on[/set-device][+FUNCTION/NTH].
/// `set-device`: cudaSetDevice, too, fails on the context that the fault broke.
struct FaultCase {
  std::string scenario;
  cuda_emulated::Fault fault;
  bool set_device_fails = false;
  std::string fallback;  ///< empty, or a function whose `fallback_nth` call fails once
  uint64_t fallback_nth = 0;

  std::string name() const;
  /// Throws std::invalid_argument for a text that names no case.
  static FaultCase parse(const std::string& name);
};

using Calls = std::map<std::string, uint64_t>;

/// Every case of a scenario that makes these calls when nothing fails.
std::vector<FaultCase> cases_of(const std::string& scenario, const Calls& calls);

/// What came of a case: written by its process into memory that it shares with the worker.
struct Report {
  bool finished;
  uint32_t struck;    ///< so many calls failed by the fault
  bool broken;        ///< the context of the scenario's device
  bool other_broken;  ///< that of another device, which was selected when the fault struck
  bool by_stream, calm_at_last, calm_at_close;
  uint32_t harms;  ///< a bit for each Harm
  uint32_t misuses;
  uint32_t left;          ///< streams, events, blocks and registrations that nobody gave back
  uint32_t left_on_well;  ///< the same on devices that are well, without registrations
  uint32_t delivered;
  char error[400];  ///< the first exception
  char where[24];
  char told[300];  ///< by a report
  char logged[300];
  char harm[200];     ///< the first
  char misuse[250];   ///< the first
  char next[300];     ///< what is wrong with the prefetcher that came next, or nothing
  char strikes[300];  ///< "THREAD>NEXT CALL OF THAT THREAD " each pair once
};

/// Runs the case in this process, which can run no other one afterwards.
void run_case(const FaultCase& one, bool hear_out, Report* report);

/// How many calls of each function a scenario makes when nothing fails. In this process, likewise.
Calls rehearse(const std::string& scenario);

}  // namespace fastloader::testing
