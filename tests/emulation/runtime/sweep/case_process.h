#pragma once

#include <string>

#include "verdict.h"

namespace fastloader::testing {

/// Runs the case in a process of its own and judges it. A process that does not come to its end is
/// ended after a minute: a hang. The calling process must have made no CUDA call. `report` is in
/// memory that both processes share. `talk`: what the emulator says goes to the standard error.
Verdict run_in_process(const FaultCase& one, Report* report, bool talk);

/// The calls of a scenario, from a process of its own. Throws std::runtime_error when it fails.
Calls rehearse_in_process(const std::string& scenario);

/// Memory that this process shares with its children, filled with zeros. Never given back.
void* shared_memory(size_t bytes);

}  // namespace fastloader::testing
