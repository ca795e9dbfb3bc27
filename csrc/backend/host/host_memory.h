#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "backend/lifetime.h"
#include "base/mapping.h"

namespace fastloader {

// A "device" address of the twin is the real address with one bit flipped that no user address has,
// so that host code which touches device memory dies at once, as it would with a GPU. Tasks flip it
// back; ordinary addresses (torch's memory) have the bit clear and pass through untouched.
//
// x86-64: bit 62 makes the address non-canonical under 48-bit and 57-bit addressing alike.
// AArch64 ignores bits 56 to 63 of user addresses; bit 55 chooses the kernel's half, which user
// code cannot reach.
#if defined(__aarch64__)
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 55;
#else
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 62;
#endif

inline void* device_address(void* real) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(real) | kDeviceBit);
}
inline void* real_address(void* device) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) & ~kDeviceBit);
}
inline const void* real_address(const void* device) {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(device) & ~kDeviceBit);
}

/// Host memory of the twin; "pinned" unless a reason is given.
class TwinHostBlock final : public HostBlock {
 public:
  TwinHostBlock(size_t bytes, std::string why_not_pinned);

  void* data() const override { return mapping_.get().data(); }
  size_t bytes() const override { return mapping_.get().bytes(); }
  bool pinned() const override { return why_not_pinned_.empty(); }
  const std::string& why_not_pinned() const override { return why_not_pinned_; }

 private:
  Leakable<Mapping> mapping_;
  const std::string why_not_pinned_;
};

/// What fresh memory of the twin's device is filled with.
constexpr int kFreshDeviceByte = 0xCB;

class TwinDeviceBlock final : public DeviceBlock {
 public:
  TwinDeviceBlock(int device, size_t bytes);

  void* data() const override { return device_address(mapping_.get().data()); }
  size_t bytes() const override { return bytes_; }
  int device() const override { return device_; }

 private:
  Leakable<Mapping> mapping_;
  const size_t bytes_;
  const int device_;
};

}  // namespace fastloader
