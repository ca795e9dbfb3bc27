#include "backend/registry.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "backend/host/host_backend.h"
#include "base/error.h"
#include "base/process.h"

namespace fastloader {
namespace {

// Leaked, and so are the backends: threads and device blocks may outlive every static.
struct Opened {
  const uint64_t generation = fork_generation();
  std::mutex mutex;  // guards: host, cuda
  std::unique_ptr<Backend> host;
  std::unique_ptr<Backend> cuda;
};

// A forked child starts over: the backends of its parent are useless to it, and the mutex may have
// been held when it was copied.
Opened& opened() {
  // Partners: the loads below and the exchange. Release and acquire carry the new object's
  // contents.
  static std::atomic<Opened*> current{nullptr};
  Opened* seen = current.load(std::memory_order_acquire);
  while (seen == nullptr || seen->generation != fork_generation()) {
    auto fresh = std::make_unique<Opened>();
    if (current.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      return *fresh.release();
    }
  }
  return *seen;
}

}  // namespace

Backend& open_backend(const std::string& name) {
  if (name != "host" && name != "cuda") {
    throw InvalidArgument("unknown backend '" + name + "': choose 'cuda' or 'host'");
  }
  Opened& backends = opened();
  const std::lock_guard<std::mutex> lock(backends.mutex);
  std::unique_ptr<Backend>& wanted = name == "host" ? backends.host : backends.cuda;
  if (wanted == nullptr) {
    wanted = name == "cuda" ? create_cuda_backend() : std::make_unique<HostBackend>();
  }
  return *wanted;
}

}  // namespace fastloader
