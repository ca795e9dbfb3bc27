#include "state.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

using namespace cuda_emulated;

namespace {

constexpr size_t kPage = 4096;

constexpr size_t kAlignment = 256;  // what cudaMalloc promises
constexpr unsigned char kFresh = 0xCB;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool mapped(const void* at, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(at) / kPage * kPage;
  const uintptr_t last = reinterpret_cast<uintptr_t>(at) + bytes;
  return msync(reinterpret_cast<void*>(first), last - first, MS_ASYNC) == 0;
}

/// What lies between a block and its guard pages is as it was made.
bool untouched_around(const Memory& memory) {
  const auto* first = reinterpret_cast<const unsigned char*>(memory.mapping);
  const auto* data = reinterpret_cast<const unsigned char*>(memory.base);
  const auto fresh = [](unsigned char byte) { return byte == kFresh; };
  return std::all_of(first, data, fresh) &&
         std::all_of(data + memory.bytes, first + memory.mapped, fresh);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  Call call("cudaMalloc", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  State& s = state();
  if (bytes == 0) {
    *out = nullptr;
    return call.end(cudaSuccess);
  }
  Device& device = s.devices[current_device()];
  if (bytes > kDeviceBytes - device.used_bytes) return call.end(cudaErrorMemoryAllocation);
  const size_t mapped_bytes = whole_pages(bytes);
  // A page without rights on either side: nothing reads or writes beyond unseen.
  void* whole = mmap(nullptr, mapped_bytes + 2 * kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return call.end(cudaErrorMemoryAllocation);
  char* first = static_cast<char*>(whole) + kPage;
  if (mprotect(first, mapped_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(whole, mapped_bytes + 2 * kPage);
    return call.end(cudaErrorMemoryAllocation);
  }
  madvise(first, mapped_bytes, MADV_DONTFORK);
  std::memset(first, kFresh, mapped_bytes);  // a device does not clear it
  // As near to the guard page behind it as the alignment allows.
  char* data = first + (mapped_bytes - bytes) / kAlignment * kAlignment;
  if (__asan_poison_memory_region) {
    __asan_poison_memory_region(first, mapped_bytes);
    __asan_unpoison_memory_region(data, bytes);
  }
  const auto memory = std::make_shared<Memory>();
  memory->base = reinterpret_cast<uintptr_t>(data);
  memory->bytes = bytes;
  memory->mapping = reinterpret_cast<uintptr_t>(first);
  memory->mapped = mapped_bytes;
  memory->device = current_device();
  s.device_memory[memory->base] = memory;
  device.used_bytes += mapped_bytes;
  *out = reinterpret_cast<void*>(memory->base | kDeviceBit);
  return call.end(cudaSuccess);
}

cudaError_t cudaFree(void* address) {
  Call call("cudaFree", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  if (address == nullptr) return call.end(cudaSuccess);
  State& s = state();
  const auto found = s.device_memory.find(real(address));
  if (!is_device_address(address) || found == s.device_memory.end()) {
    misuse(call.name(), "%p is no block that cudaMalloc made, or was freed before", address);
    return call.end(cudaErrorInvalidValue);
  }
  const std::shared_ptr<Memory> memory = found->second;
  if (memory->pending > 0) {
    misuse(call.name(), "%zu bytes while %llu operations on them are pending", memory->bytes,
           static_cast<unsigned long long>(memory->pending));
    while (memory->pending > 0) s.changed.wait(s.lock);  // the real one synchronises the device
  }
  s.device_memory.erase(memory->base);
  s.devices[memory->device].used_bytes -= memory->mapped;
  char* first = reinterpret_cast<char*>(memory->mapping);
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(first, memory->mapped);
  if (!untouched_around(*memory)) {
    misuse(call.name(), "the %zu bytes were written beyond their bounds", memory->bytes);
  }
  // The addresses are never used again: a late access is seen.
  mprotect(first, memory->mapped, PROT_NONE);
  madvise(first, memory->mapped, MADV_DONTNEED);
  return call.end(cudaSuccess);
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  Call call("cudaHostRegister", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  if (address == nullptr || bytes == 0 || is_device_address(address)) {
    return call.end(cudaErrorInvalidValue);
  }
  if ((flags & ~unsigned{cudaHostRegisterPortable | cudaHostRegisterMapped |
                         cudaHostRegisterIoMemory | cudaHostRegisterReadOnly}) != 0 ||
      !mapped(address, bytes)) {
    return call.end(cudaErrorInvalidValue);
  }
  if (reinterpret_cast<uintptr_t>(address) % kPage != 0 || bytes % kPage != 0) {
    note_locked("cudaHostRegister of a range that is not whole pages");
  }
  std::vector<std::shared_ptr<Memory>> found;
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (registered_at_locked(at, bytes, &found) != Pinned::kNo) {
    misuse(call.name(), "a range that is registered already");
    return call.end(cudaErrorHostMemoryAlreadyRegistered);
  }
  const auto memory = std::make_shared<Memory>();
  memory->base = at;
  memory->bytes = bytes;
  memory->device = current_device();
  state().registered[at] = memory;
  return call.end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* address) {
  Call call("cudaHostUnregister", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  State& s = state();
  const auto found = s.registered.find(reinterpret_cast<uintptr_t>(address));
  if (found == s.registered.end()) {
    misuse(call.name(), "%p is not registered", address);
    return call.end(cudaErrorHostMemoryNotRegistered);
  }
  const std::shared_ptr<Memory> memory = found->second;
  if (!mapped(address, memory->bytes)) {
    misuse(call.name(), "memory that was unmapped before");
  }
  // What is queued on a broken context is never executed.
  if (memory->pending > 0 && s.devices[memory->device].broken == cudaSuccess) {
    misuse(call.name(), "%zu bytes while %llu operations on them are pending", memory->bytes,
           static_cast<unsigned long long>(memory->pending));
  }
  while (memory->pending > 0) s.changed.wait(s.lock);
  s.registered.erase(found);
  return call.end(cudaSuccess);
}

}  // extern "C"
