#include "backend/host/host_memory.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

Mapping map(const char* what, size_t bytes) {
  try {
    return Mapping(bytes, Mapping::InChild::kAbsent);
  } catch (const std::bad_alloc&) {
    throw BackendError("cannot map " + std::to_string(bytes) + " bytes of " + what + " memory");
  }
}

}  // namespace

TwinHostBlock::TwinHostBlock(size_t bytes, std::string why_not_pinned)
    : mapping_(map("host", bytes)), why_not_pinned_(std::move(why_not_pinned)) {}

TwinDeviceBlock::TwinDeviceBlock(int device, size_t bytes)
    : mapping_(map("host twin device", bytes)), bytes_(bytes), device_(device) {
  // As a device's, fresh memory holds anything. In zeros, a kernel that takes unwritten memory for
  // indices would pass for right.
  std::memset(mapping_.get().data(), kFreshDeviceByte, mapping_.get().bytes());
}

}  // namespace fastloader
