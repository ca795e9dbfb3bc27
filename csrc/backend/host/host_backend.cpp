#include "backend/host/host_backend.h"

#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "backend/checks.h"
#include "backend/host/host_memory.h"
#include "backend/host/host_stream.h"
#include "base/error.h"

namespace fastloader {

HostBackend::HostBackend(const HostBackendOptions& options)
    : shared_(std::make_shared<HostShared>(options)) {
  if (options.devices < 1) throw InvalidArgument("a host backend needs at least one device");
}

int HostBackend::device_count() const { return shared_->options.devices; }

void HostBackend::require(int device) const { require_device("host", device, device_count()); }

void HostBackend::attach_thread(int device) { require(device); }

std::unique_ptr<Stream> HostBackend::create_stream(int device) {
  require(device);
  const std::unique_lock<std::shared_mutex> lock(shared_->mutex);
  auto queue = std::make_shared<HostQueue>(device, ++shared_->queues_made, shared_->options);
  shared_->queues.emplace(static_cast<uintptr_t>(queue->number()), queue);
  return std::make_unique<HostStream>(shared_, queue, device, HostStream::Owns::kQueue);
}

std::unique_ptr<Stream> HostBackend::wrap_external(int device, uintptr_t handle) {
  require(device);
  std::shared_ptr<HostQueue> queue;
  if (handle != 0) {
    const std::shared_lock<std::shared_mutex> lock(shared_->mutex);
    const auto found = shared_->queues.find(handle);
    if (found == shared_->queues.end() || found->second->device() != device) {
      throw InvalidArgument("no live stream of host device " + std::to_string(device) +
                            " has the handle " + std::to_string(handle));
    }
    queue = found->second;
  }
  return std::make_unique<HostStream>(shared_, queue, device, HostStream::Owns::kNothing);
}

std::unique_ptr<Event> HostBackend::create_event(int device) {
  require(device);
  const std::unique_lock<std::shared_mutex> lock(shared_->mutex);
  return std::make_unique<HostEvent>(shared_, shared_->events.emplace_back(), device);
}

std::unique_ptr<HostBlock> HostBackend::allocate_host(int device, size_t bytes) {
  require(device);
  std::string why_not_pinned;
#ifdef FASTLOADER_TEST_HOOKS
  if (shared_->options.fail_pinning) {
    why_not_pinned = "injected failure of pinning on host device " + std::to_string(device);
  }
#endif
  return std::make_unique<TwinHostBlock>(bytes, std::move(why_not_pinned));
}

std::unique_ptr<DeviceBlock> HostBackend::allocate_device(int device, size_t bytes) {
  require(device);
  return std::make_unique<TwinDeviceBlock>(device, bytes);
}

}  // namespace fastloader
