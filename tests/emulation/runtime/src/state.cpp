#include "state.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace cuda_emulated {
namespace {

unsigned long environment(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

}  // namespace

void read_options_locked(State& s) {
  if (s.options_read) return;
  s.options_read = true;
  s.environment.devices = static_cast<int>(environment("CUDA_EMULATED_DEVICES", 2));
  s.environment.delay_seed = environment("CUDA_EMULATED_SEED", 0);
  s.environment.max_delay_us = static_cast<unsigned>(environment("CUDA_EMULATED_MAX_DELAY_US", 50));
  s.options = s.environment;
}

State& state() {
  alignas(State) static char memory[sizeof(State)];
  static State* const made = [] {  // never destroyed: its threads outlive every static
    std::atexit(report_at_exit);
    clear_misuses();
    return new (memory) State;
  }();
  return *made;
}

bool in_forked_child() { return state().pid != 0 && state().pid != getpid(); }

void note_locked(std::string text) {
  if (state().notes.size() < 1000) state().notes.push_back(std::move(text));
}

Inside::Inside() {
  quiet_begin();
  state().lock.lock();
  read_options_locked(state());
}

Inside::~Inside() {
  state().lock.unlock();
  quiet_end();
}

void set_options(const Options& options) {
  const Inside inside;
  State& s = state();
  s.options = options;
  if (!options.delay_seed) s.options.delay_seed = s.environment.delay_seed;
  if (!options.max_delay_us) s.options.max_delay_us = s.environment.max_delay_us;
}
Options options() {
  const Inside inside;
  return state().options;
}
Outsider::Outsider() { ++t_thread.outsider; }
Outsider::~Outsider() { --t_thread.outsider; }
Counts counts() {
  const Inside inside;
  return state().counts;
}
std::map<std::string, uint64_t> counts_by_function() {
  std::map<std::string, uint64_t> all;
  for (const auto& [thread, of] : counts()) {
    for (const auto& [function, calls] : of) all[function] += calls;
  }
  return all;
}
bool synchronises(const std::string& f) {
  return f == "cudaStreamSynchronize" || f == "cudaEventSynchronize" || f == "cudaMalloc" ||
         f == "cudaFree" || f == "cudaHostRegister" || f == "cudaHostUnregister" ||
         f == "cudaDeviceSynchronize" || f == "(pageable copy)" || f == "(kernel load)";
}
bool allocates(const std::string& f) {
  return f == "cudaMalloc" || f == "cudaFree" || f == "cudaHostRegister" ||
         f == "cudaHostUnregister" || f == "cudaStreamCreateWithFlags" ||
         f == "cudaStreamDestroy" || f == "cudaEventCreateWithFlags" || f == "cudaEventDestroy";
}
std::vector<std::string> notes() {
  const Inside inside;
  return state().notes;
}
Live live() {
  const Inside inside;
  State& s = state();
  return {s.streams.size(), s.events.size(), s.device_memory.size(), s.registered.size(),
          s.pending};
}
Live live_on(int device) {
  const Inside inside;
  const State& s = state();
  const auto mine = [device](const auto* each) { return each->device == device; };
  Live live;
  live.streams = static_cast<size_t>(std::count_if(s.streams.begin(), s.streams.end(), mine));
  live.events = static_cast<size_t>(std::count_if(s.events.begin(), s.events.end(), mine));
  for (const auto& [base, memory] : s.device_memory) live.device_blocks += mine(memory.get());
  return live;
}
bool context_exists(int device) {
  const Inside inside;
  return state().devices[device].active;
}
void drain() {
  const Inside inside;
  while (state().pending > 0) state().changed.wait(state().lock);
}
void add_kernel_body(const KernelBody& body) {
  const Inside inside;
  state().bodies[body.name] = body;
}

}  // namespace cuda_emulated
