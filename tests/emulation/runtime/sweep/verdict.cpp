#include "verdict.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>

namespace fastloader::testing {

const std::array<const char*, kBads> kBadNames{"wrong",  "late",   "early",  "misuse",
                                               "hang",   "crash",  "leak",   "misnamed",
                                               "forgot", "silent", "device", "next"};
const std::array<const char*, kHeards> kHeardNames{"not-struck", "thrown", "logged",
                                                   "reported",   "stream", "silent"};

namespace {

// --- where silence is right ----------------------------------------------------------------------

/// Everywhere the fault struck, the thread went on to make a call of this list.
bool went_on_to(const Report& report, std::initializer_list<const char*> calls) {
  std::istringstream strikes(report.strikes);
  size_t seen = 0;
  for (std::string strike; strikes >> strike; ++seen) {
    const std::string next = strike.substr(strike.find('>') + 1);
    const auto same = [&next](const char* call) { return next == call; };
    if (!std::any_of(calls.begin(), calls.end(), same)) return false;
  }
  return seen > 0;
}

bool only_on(const Report& report, const char* thread) {
  std::istringstream strikes(report.strikes);
  size_t seen = 0;
  for (std::string strike; strikes >> strike; ++seen) {
    if (strike.substr(0, strike.find('>')) != thread) return false;
  }
  return seen > 0;
}

bool always(const Report&) { return true; }

struct Silence {
  const char* function;
  bool (*is_right)(const Report&);
};

const Silence kSilences[] = {
    // They only ask, and nothing that must be ordered hangs on the answer: the version is a word
    // in the report, the bus id chooses the NUMA node of a slot, an event that cannot be asked
    // counts as not done, a stream that cannot be asked is waited on and refuses then.
    {"cudaRuntimeGetVersion", always},
    {"cudaDriverGetVersion", always},
    {"cudaDeviceGetPCIBusId", always},
    {"cudaEventQuery", always},
    {"cudaStreamIsCapturing", always},
    // They put back what the caller had, or allow what a capture elsewhere would forbid. The work
    // itself does not depend on them.
    {"cuCtxGetCurrent", always},
    {"cuCtxSetCurrent", always},
    {"cudaThreadExchangeStreamCaptureMode", always},
    // The call for which the device was to be selected was made all the same, and takes its device
    // from the handle or the address that it is given.
    {"cudaSetDevice",
     [](const Report& report) {
       return went_on_to(report, {"cudaEventQuery", "cudaStreamIsCapturing", "cudaEventDestroy",
                                  "cudaStreamDestroy", "cudaHostUnregister", "cudaFree",
                                  "cudaStreamSynchronize", "cudaEventSynchronize"});
     }},
    // While the prefetcher closes: every batch has been delivered and the streams wait for what was
    // cancelled, so that there is no consumer left to tell.
    {"cudaStreamSynchronize", [](const Report& report) { return report.calm_at_close; }},
    // The reaper, behind the last delivery: the consumer's stream waits for the batch by itself.
    {"cudaEventSynchronize",
     [](const Report& report) { return report.calm_at_last && only_on(report, "fl-reaper"); }},
};

const Silence* silence_of(const std::string& function) {
  for (const Silence& each : kSilences) {
    if (function == each.function) return &each;
  }
  return nullptr;
}

bool may_be_silent(const FaultCase& one, const Report& report) {
  // A context that broke is told by the next call of anybody's, which `next` has tried.
  if (report.broken && report.calm_at_close) return true;
  const Silence* silence = silence_of(one.fault.function);
  return one.fallback.empty() && silence != nullptr && silence->is_right(report) && !report.broken;
}

// --- names ---------------------------------------------------------------------------------------

/// What an error says of a call.
std::string word_for(const std::string& function) {
  if (function == "cudaLaunchKernel" || function == "exec:kernel") return "launch of";
  if (function == "cudaEventDestroy" || function == "cudaStreamDestroy") return "destroying";
  if (function == "cudaGetDriverEntryPointByVersion") return "the NVIDIA driver does not offer";
  if (function == "cudaGetDeviceProperties") return "unknown: ";
  return function;
}

bool names(const FaultCase& one, const char* text) {
  // Asked whether a stream is being captured, CUDA answers with an error of captures where another
  // stream's forbids the question. The answer is taken for a yes.
  if (one.fault.function == "cudaStreamIsCapturing" &&
      one.fault.error == cudaErrorStreamCaptureUnsupported &&
      std::strstr(text, "is being captured into a graph") != nullptr) {
    return true;
  }
  if (std::strstr(text, word_for(one.fault.function).c_str()) != nullptr) return true;
  return !one.fallback.empty() && std::strstr(text, word_for(one.fallback).c_str()) != nullptr;
}

/// What a refused call did not give back.
bool gives_back(const std::string& function) {
  return function == "cudaEventDestroy" || function == "cudaStreamDestroy" ||
         function == "cudaHostUnregister" || function == "cudaFree";
}

Bad bad_of(Harm harm) {
  switch (harm) {
    case Harm::kWrongBatch:
    case Harm::kNoEnd:
      return Bad::kWrongBatch;
    case Harm::kLateWrite:
      return Bad::kLateWrite;
    case Harm::kEarlyWrite:
      return Bad::kEarlyWrite;
    case Harm::kNotSticky:
      return Bad::kForgotten;
    case Harm::kWaitedInVain:
      return Bad::kHang;
    case Harm::kOtherDevice:
      return Bad::kOtherDevice;
  }
  return Bad::kCrash;
}

Heard heard_of(const Report& report) {
  if (report.struck == 0) return Heard::kNotStruck;
  if (report.error[0] != 0) return Heard::kThrown;
  if (report.logged[0] != 0) return Heard::kLogged;
  if (report.told[0] != 0) return Heard::kReported;
  if (report.by_stream) return Heard::kByStream;
  return Heard::kSilent;
}

}  // namespace

bool is_always_silent(const std::string& function) {
  const Silence* silence = silence_of(function);
  return silence != nullptr && silence->is_right == always;
}

Verdict judge(const FaultCase& one, const Report& report, const std::string& ended) {
  Verdict verdict;
  const auto bad = [&](Bad kind, std::string why) {
    verdict.bad.emplace_back(kind, std::move(why));
  };
  verdict.heard = heard_of(report);
  if (!ended.empty()) {
    bad(ended == "hang" ? Bad::kHang : Bad::kCrash, ended);
    return verdict;
  }
  for (unsigned harm = 0; harm < 32; ++harm) {
    if ((report.harms >> harm & 1) == 0) continue;
    // Nothing else can read or put back the caller's context.
    const bool unavoidable = static_cast<Harm>(harm) == Harm::kOtherDevice &&
                             one.fault.function.compare(0, 5, "cuCtx") == 0;
    if (!unavoidable) bad(bad_of(static_cast<Harm>(harm)), report.harm);
  }
  if (report.misuses > 0) bad(Bad::kMisuse, report.misuse);
  if (report.next[0] != 0) bad(Bad::kNext, report.next);
  if (report.struck == 0) {
    if (!one.fallback.empty()) return verdict;  // the other call may have failed
    // Without a fault there is nothing to tell.
    if (report.error[0] != 0) bad(Bad::kMisnamed, report.error);
    if (report.left > 0) bad(Bad::kLeak, std::to_string(report.left) + " things are left");
    return verdict;
  }
  if (report.by_stream && !report.broken && !report.other_broken) {
    bad(Bad::kMisnamed, "torch was told, on a context that is well");
  }
  // On a broken context every giving back is refused, and a registration's may be, which belongs to
  // no device.
  const bool all_well = !report.broken && !report.other_broken;
  const uint32_t left = all_well ? report.left : report.left_on_well;
  const uint32_t refused = gives_back(one.fault.function) ? report.struck : 0;
  if (left > refused) {
    bad(Bad::kLeak, std::to_string(left) + " things are left" +
                        (all_well ? "" : " on the device that is well") + ", the giving back of " +
                        std::to_string(refused) + " was refused");
  }
  if (all_well) {
    // On a broken context every call says the same, whichever came first.
    const char* text = verdict.heard == Heard::kThrown     ? report.error
                       : verdict.heard == Heard::kLogged   ? report.logged
                       : verdict.heard == Heard::kReported ? report.told
                                                           : nullptr;
    if (text != nullptr && !names(one, text)) bad(Bad::kMisnamed, text);
  }
  if (verdict.heard == Heard::kSilent && !may_be_silent(one, report)) {
    bad(Bad::kSilent, std::string("nothing tells of it; ") + report.strikes);
  }
  return verdict;
}

}  // namespace fastloader::testing
