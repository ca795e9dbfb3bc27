#include "state.h"

namespace cuda_emulated {

cudaError_t strike_locked(const std::string& name) {
  State& s = state();
  cudaError_t error = cudaSuccess;
  for (FaultState& each : s.faults) {
    if (each.fault.function != name) continue;
    ++each.seen;
    const bool over = !each.fault.from_then_on && each.seen >= each.fault.nth + each.fault.times;
    if (each.seen >= each.fault.nth && !over) {
      error = each.fault.error;
      ++s.struck;
      const std::string words = each.fault.words.empty()
                                    ? "emulated: call " + std::to_string(each.seen) + " of " + name
                                    : each.fault.words;
      s.words[error] = s.all_words.insert(words).first->c_str();
    }
  }
  if (is_sticky(error) && name.compare(0, 5, "exec:") != 0) {
    const int about_to = t_thread.selecting;
    const bool exists = about_to >= 0 && about_to < s.options.devices;
    break_locked(exists ? about_to : current_device(), error, name.c_str());
  }
  return error;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorMisalignedAddress:
      return true;
    default:
      return false;
  }
}

void break_locked(int device, cudaError_t error, const char* by) {
  State& s = state();
  if (s.devices[device].broken != cudaSuccess) return;
  s.devices[device].broken = error;
  note_locked("device " + std::to_string(device) + " broken by " + by);
  s.changed.notify_all();
}

void inject(const Fault& fault) {
  const Inside inside;
  state().faults.push_back({fault, 0});
}
void clear_faults() {
  const Inside inside;
  state().faults.clear();
  state().struck = 0;
  state().strikes.clear();
}
uint64_t faults_struck() {
  const Inside inside;
  return state().struck;
}
std::vector<Strike> strikes() {
  const Inside inside;
  return state().strikes;
}

cudaError_t broken(int device) {
  const Inside inside;
  return state().devices[device].broken;
}
void repair() {
  const Inside inside;
  for (Device& device : state().devices) device.broken = cudaSuccess;
}

}  // namespace cuda_emulated
