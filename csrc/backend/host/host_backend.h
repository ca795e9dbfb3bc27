#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/host/host_queue.h"

namespace fastloader {

struct HostShared;

/// The host twin: imitates an asynchronous device with threads, so that everything above the
/// backend can be tested without one, under ThreadSanitizer, and, with FASTLOADER_TEST_HOOKS, with
/// delays and failures. Tickets are the only order it creates between threads: no mutex is shared
/// by two streams' tasks.
///
/// Objects made by it may outlive it.
class HostBackend final : public Backend {
 public:
  explicit HostBackend(const HostBackendOptions& options = {});

  const char* name() const override { return "host"; }
  int device_count() const override;
  void attach_thread(int device) override;
  std::unique_ptr<Stream> create_stream(int device) override;
  std::unique_ptr<Stream> wrap_external(int device, uintptr_t handle) override;
  std::unique_ptr<Event> create_event(int device) override;
  std::unique_ptr<HostBlock> allocate_host(int device, size_t bytes) override;
  std::unique_ptr<DeviceBlock> allocate_device(int device, size_t bytes) override;

 private:
  void require(int device) const;

  const std::shared_ptr<HostShared> shared_;
};

}  // namespace fastloader
