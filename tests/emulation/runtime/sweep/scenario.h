#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "consumer.h"
#include "prefetcher_test.h"

// What the consumer does with a prefetcher while one CUDA call or another fails, and what came of
// it.

namespace fastloader::testing {

/// What may never be, whatever fails.
enum class Harm : uint8_t {
  kWrongBatch,    ///< a batch was called good and its content is not
  kLateWrite,     ///< memory was written after the point at which its stream got it back
  kEarlyWrite,    ///< memory was written while the consumer still used it
  kNotSticky,     ///< the error was told once and then forgotten
  kNoEnd,         ///< the epoch was cut short without an error
  kWaitedInVain,  ///< a wait of ten seconds
  kOtherDevice,   ///< a call of the loader left another device selected than it found
};

struct Scenario {
  std::string name;
  int device = 0;
  std::vector<size_t> taken;            ///< batches that the consumer takes of each epoch
  std::vector<size_t> stream_of = {0};  ///< the n-th batch goes to stream n modulo the size
  std::vector<bool> streams = {false};  ///< of the consumer; true: the device's default stream
  bool large = false;  ///< whether a leaf goes straight from its slot to its output
};

/// The four scenarios with a prefetcher; "parts" has none, see `run_parts`.
const std::vector<Scenario>& scenarios();
/// The batches of every epoch, as many with a large leaf among them as without. Made once, before
/// the first case: they are costly.
const std::vector<Batch>& scenario_batches(bool large = false);

struct Outcome {
  std::string error;           ///< the first exception
  std::string where;           ///< it was thrown
  std::string told;            ///< what a report says without an exception
  bool by_stream = false;      ///< torch's own calls reported an error
  bool calm_at_last = false;   ///< no fault had struck when the last delivery was asked for
  bool calm_at_close = false;  ///< no fault had struck when the closing began
  size_t delivered = 0;
  std::vector<std::pair<Harm, std::string>> harms;

  void harm(Harm kind, std::string what) { harms.emplace_back(kind, std::move(what)); }
  void fail(const char* place, const char* what) {
    if (!error.empty()) return;
    error = what;
    where = place;
  }
};

/// Runs the epochs of `scenario` with a prefetcher of its own, and closes it. With `hear_out`, a
/// fault that has struck unheard is given time to be told after the last batch. The memory goes to
/// `kept`: the emulator must have drained before it is freed.
void run_scenario(const Scenario& scenario,
                  const std::vector<std::unique_ptr<ConsumerStream>>& streams, bool hear_out,
                  std::vector<std::unique_ptr<OfferedMemory>>* kept, Outcome* outcome);

/// The objects of the backend one by one, and the report about CUDA.
void run_parts(Outcome* outcome);

}  // namespace fastloader::testing
