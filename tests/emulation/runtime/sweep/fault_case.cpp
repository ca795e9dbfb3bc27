#include "fault_case.h"

#include <cstdio>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "backend/registry.h"
#include "base/log.h"

namespace fastloader::testing {
namespace {

// That an error names the call is ours to see to, not CUDA's.
constexpr const char* kWords = "as injected";

struct NamedError {
  const char* name;
  cudaError_t error;
};

constexpr NamedError kErrors[] = {
    {"MemoryAllocation", cudaErrorMemoryAllocation},
    {"LaunchFailure", cudaErrorLaunchFailure},  // breaks the context
    {"Unknown", cudaErrorUnknown},
    {"NotReady", cudaErrorNotReady},
    {"StreamCaptureUnsupported", cudaErrorStreamCaptureUnsupported},
    {"InvalidResourceHandle", cudaErrorInvalidResourceHandle},
    {"IllegalAddress", cudaErrorIllegalAddress},  // the same, only while a device executes
};

const char* name_of(cudaError_t error) {
  for (const NamedError& each : kErrors) {
    if (each.error == error) return each.name;
  }
  return "?";
}

bool breaks(cudaError_t error) {
  return error == cudaErrorLaunchFailure || error == cudaErrorIllegalAddress;
}

bool is_execution(const std::string& function) { return function.compare(0, 5, "exec:") == 0; }

const Scenario* find_scenario(const std::string& name) {
  for (const Scenario& each : scenarios()) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

template <size_t kRoom>
void put(char (&to)[kRoom], const std::string& text) {
  std::snprintf(to, kRoom, "%s", text.c_str());
}

using Streams = std::vector<std::unique_ptr<ConsumerStream>>;
using Kept = std::vector<std::unique_ptr<OfferedMemory>>;

Streams streams_of(const Scenario& scenario) {
  Streams streams;
  for (const bool is_default : scenario.streams) {
    streams.push_back(std::make_unique<ConsumerStream>(scenario.device, is_default));
  }
  return streams;
}

size_t count(const cuda_emulated::Live& live) {
  return live.streams + live.events + live.device_blocks + live.registrations;
}

void inject(const FaultCase& one) {
  cuda_emulated::Fault fault = one.fault;
  fault.words = kWords;
  cuda_emulated::inject(fault);
  if (one.fallback.empty()) return;
  cuda_emulated::Fault second;
  second.function = one.fallback;
  second.nth = one.fallback_nth;
  second.error = one.fault.error;
  second.words = kWords;
  cuda_emulated::inject(second);
}

/// A prefetcher that is opened once the fault is over works, or is refused where the context broke.
std::string next_one(const Scenario& scenario, bool broken, const Streams& streams, Kept* kept) {
  Scenario once = scenario;
  once.taken = {scenario_batches().size() + 1};
  Outcome outcome;
  run_scenario(once, streams, false, kept, &outcome);
  if (!outcome.harms.empty()) return outcome.harms[0].second;
  if (broken)
    return outcome.error.empty() && !outcome.by_stream ? "it worked, on a broken context" : "";
  return outcome.error.empty() ? "" : "it failed: " + outcome.error;
}

}  // namespace

std::string FaultCase::name() const {
  std::string text = scenario + "/" + fault.function + "/" + std::to_string(fault.nth) + "/" +
                     name_of(fault.error) + "/";
  text += fault.from_then_on ? "on" : fault.times == 1 ? "once" : std::to_string(fault.times) + "x";
  if (set_device_fails) text += "/set-device";
  if (!fallback.empty()) text += "+" + fallback + "/" + std::to_string(fallback_nth);
  return text;
}

FaultCase FaultCase::parse(const std::string& name) {
  std::vector<std::string> words;
  std::string rest = name;
  FaultCase one;
  const size_t plus = rest.find('+');
  if (plus != std::string::npos) {
    const std::string second = rest.substr(plus + 1);
    rest.resize(plus);
    one.fallback = second.substr(0, second.find('/'));
    one.fallback_nth = std::stoull(second.substr(second.find('/') + 1));
  }
  std::istringstream stream(rest);
  for (std::string word; std::getline(stream, word, '/');) words.push_back(word);
  if (words.size() == 6 && words[5] == "set-device") {
    one.set_device_fails = true;
    words.pop_back();
  }
  if (words.size() != 5) throw std::invalid_argument(name + " names no case");
  one.scenario = words[0];
  one.fault.function = words[1];
  one.fault.nth = std::stoull(words[2]);
  one.fault.error = cudaSuccess;
  for (const NamedError& each : kErrors) {
    if (words[3] == each.name) one.fault.error = each.error;
  }
  one.fault.from_then_on = words[4] == "on";
  if (words[4] == "2x" || words[4] == "3x") one.fault.times = words[4] == "2x" ? 2 : 3;
  if (one.name() != name) throw std::invalid_argument(name + " names no case");
  return one;
}

std::vector<FaultCase> cases_of(const std::string& scenario, const Calls& calls) {
  std::vector<FaultCase> all;
  const auto add = [&](const std::string& function, uint64_t nth, cudaError_t error,
                       uint64_t times) {
    FaultCase one;
    one.scenario = scenario;
    one.fault.function = function;
    one.fault.nth = nth;
    one.fault.error = error;
    one.fault.from_then_on = times == 0;
    one.fault.times = times == 0 ? 1 : times;
    all.push_back(one);
    if (!breaks(error)) return;
    one.set_device_fails = true;
    all.push_back(one);
  };
  for (const auto& [function, most] : calls) {
    // It hands out the errors of others. A fault of its own could not be told from one of them.
    if (function == "cudaGetLastError") continue;
    for (uint64_t nth = 1; nth <= most; ++nth) {
      for (const NamedError& each : kErrors) {
        if (is_execution(function)) {
          if (breaks(each.error)) add(function, nth, each.error, 1);
        } else if (each.error == cudaErrorLaunchFailure) {
          add(function, nth, each.error, 1);  // again or not: what follows fails anyway
          add(function, nth, each.error, 0);
        } else if (each.error != cudaErrorIllegalAddress) {
          for (const uint64_t times : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{0}})
            add(function, nth, each.error, times);
        }
      }
    }
  }
  // A call and the one that stands in for it. cudaStreamSynchronize is made for nothing else before
  // the closing; the reaper makes cudaEventSynchronize, too, so that each of its calls is tried.
  const auto pair = [&](const char* function, const char* fallback, uint64_t most_fallbacks) {
    const auto found = calls.find(function);
    for (uint64_t nth = 1; found != calls.end() && nth <= found->second; ++nth) {
      for (uint64_t second = 1; second <= most_fallbacks; ++second) {
        FaultCase one;
        one.scenario = scenario;
        one.fault.function = function;
        one.fault.nth = nth;
        one.fallback = fallback;
        one.fallback_nth = second;
        all.push_back(one);
      }
    }
  };
  pair("cudaEventRecord", "cudaStreamSynchronize", 1);
  const auto waits = calls.find("cudaEventSynchronize");
  pair("cudaStreamWaitEvent", "cudaEventSynchronize", waits == calls.end() ? 0 : waits->second + 1);
  return all;
}

void run_case(const FaultCase& one, bool hear_out, Report* report) {
  *report = Report{};
  cuda_emulated::keep_misuses_apart();                // from those of the cases beside it
  const cuda_emulated::Tolerance told_in_the_report;  // a misuse does not end the process
  cuda_emulated::Options options;
  options.h2d_delay_us = 200;  // a slow bus: what does not wait for it is seen
  options.set_device_fails_on_broken = one.set_device_fails;
  cuda_emulated::set_options(options);
  const Scenario* scenario = find_scenario(one.scenario);
  const bool parts = scenario == nullptr;
  if (parts) scenario = &scenarios()[0];
  Streams streams;
  if (!parts) streams = streams_of(*scenario);
  const size_t before = count(cuda_emulated::live());
  const size_t before_on[] = {count(cuda_emulated::live_on(0)), count(cuda_emulated::live_on(1))};
  if (!one.fault.function.empty()) inject(one);
  Outcome outcome;
  Kept kept;
  if (parts) {
    run_parts(&outcome);
  } else {
    try {
      run_scenario(*scenario, streams, hear_out, &kept, &outcome);
    } catch (const TorchFailure&) {
      outcome.by_stream = true;
    }
  }
  report->struck = static_cast<uint32_t>(cuda_emulated::faults_struck());
  std::set<std::string> strikes;
  uint32_t by_the_first = 0;
  for (const cuda_emulated::Strike& each : cuda_emulated::strikes()) {
    if (each.function == one.fault.function) ++by_the_first;
    strikes.insert(each.thread + ">" + each.next + " ");
  }
  // A call that stands in for one that did not fail is another case.
  if (!one.fallback.empty()) report->struck = by_the_first;
  put(report->strikes, std::accumulate(strikes.begin(), strikes.end(), std::string()));
  cuda_emulated::clear_faults();
  cuda_emulated::drain();
  kept.clear();
  report->left = static_cast<uint32_t>(count(cuda_emulated::live()) - before);
  for (const int device : {0, 1}) {
    if (cuda_emulated::broken(device) != cudaSuccess) continue;
    report->left_on_well +=
        static_cast<uint32_t>(count(cuda_emulated::live_on(device)) - before_on[device]);
  }
  report->broken = cuda_emulated::broken(scenario->device) != cudaSuccess;
  report->other_broken = cuda_emulated::broken(1 - scenario->device) != cudaSuccess;
  std::string logged;
  for (const std::string& message : drain_log().messages) logged += message + " | ";
  put(report->logged, logged);
  if (!one.fault.function.empty()) {
    try {
      {
        const cuda_emulated::Outsider torch;
        cudaSetDevice(0);  // where a fault left another one selected
      }
      if (parts) streams = streams_of(*scenario);
      put(report->next, next_one(*scenario, report->broken, streams, &kept));
    } catch (const std::exception& error) {
      if (!report->broken) put(report->next, error.what());
    }
    cuda_emulated::drain();
    kept.clear();
  }
  const std::vector<std::string> misuses = cuda_emulated::misuses();
  report->misuses = static_cast<uint32_t>(misuses.size());
  if (!misuses.empty()) put(report->misuse, misuses[0]);
  for (const auto& [harm, what] : outcome.harms) {
    if (report->harms == 0) put(report->harm, what);
    report->harms |= 1u << static_cast<unsigned>(harm);
  }
  report->by_stream = outcome.by_stream;
  report->calm_at_last = outcome.calm_at_last;
  report->calm_at_close = outcome.calm_at_close;
  report->delivered = static_cast<uint32_t>(outcome.delivered);
  put(report->error, outcome.error);
  put(report->where, outcome.where);
  put(report->told, outcome.told);
  report->finished = true;
}

Calls rehearse(const std::string& scenario) {
  FaultCase none;
  none.scenario = scenario;
  Report report{};
  run_case(none, false, &report);
  if (report.error[0] != 0 || report.harms != 0 || report.misuses != 0 || report.left != 0) {
    throw std::runtime_error(scenario + " fails without any fault: " + report.error + report.harm +
                             report.misuse);
  }
  Calls calls = cuda_emulated::counts_by_function();
  for (auto each = calls.begin(); each != calls.end();) {
    each = each->first[0] == '(' ? calls.erase(each) : std::next(each);
  }
  calls["exec:copy"] = calls["cudaMemcpyAsync"];
  calls["exec:kernel"] = calls["cudaLaunchKernel"];
  for (auto each = calls.begin(); each != calls.end();) {
    each = each->second == 0 ? calls.erase(each) : std::next(each);
  }
  return calls;
}

}  // namespace fastloader::testing
