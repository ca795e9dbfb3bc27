#include "state.h"

namespace cuda_emulated {

bool is_device_address(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & kDeviceBit) != 0;
}

uintptr_t real(const void* address) { return reinterpret_cast<uintptr_t>(address) & ~kDeviceBit; }

void* real_address(const void* device) { return reinterpret_cast<void*>(real(device)); }

std::shared_ptr<Memory> device_memory_at_locked(uintptr_t at, size_t bytes) {
  State& s = state();
  auto next = s.device_memory.upper_bound(at);
  if (next == s.device_memory.begin()) return nullptr;
  const std::shared_ptr<Memory>& found = std::prev(next)->second;
  return found->holds(at, bytes) ? found : nullptr;
}

Pinned registered_at_locked(uintptr_t at, size_t bytes,
                            std::vector<std::shared_ptr<Memory>>* found) {
  bool some = false;
  for (const auto& [base, memory] : state().registered) {
    if (memory->holds(at, bytes)) {
      found->push_back(memory);
      return Pinned::kWhole;
    }
    some = some || memory->touches(at, bytes);
  }
  return some ? Pinned::kPartly : Pinned::kNo;
}

}  // namespace cuda_emulated
