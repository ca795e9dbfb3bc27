#include "state.h"

namespace cuda_emulated {

thread_local Thread t_thread;

int current_device() { return t_thread.context >= 0 ? t_thread.context : t_thread.device; }

void set_context_locked(int device) {
  State& s = state();
  Device& mine = s.devices[device];
  if (!mine.active) {
    mine.active = true;
    mine.legacy = make_stream_locked(device, true, true);
  }
  if (s.pid == 0) s.pid = getpid();
  t_thread.context = device;
}

void ensure_context_locked(const char* by) {
  State& s = state();
  if (t_thread.context >= 0) return;
  if (!s.devices[t_thread.device].active) {
    note_locked(std::string(by) + " made a context on device " + std::to_string(t_thread.device) +
                " by the way");
  }
  set_context_locked(t_thread.device);
}

}  // namespace cuda_emulated
