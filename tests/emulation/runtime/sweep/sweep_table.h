#pragma once

#include <cstdint>
#include <vector>

#include "verdict.h"

namespace fastloader::testing {

/// What the sweep keeps of a verdict, in memory that its processes share.
struct Result {
  bool run;
  Heard heard;
  uint32_t bad;   ///< a bit for each Bad
  char why[200];  ///< the first

  void keep(const Verdict& verdict);
};

/// Prints a row for each scenario and function, the sums, and the bad cases: first by kind, with
/// one example each, then all by name. Whether every case was run, none is bad and some of each
/// function have struck.
bool print_table(const std::vector<FaultCase>& cases, const Result* results);

}  // namespace fastloader::testing
