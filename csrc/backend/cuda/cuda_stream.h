#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "backend/backend.h"
#include "backend/cuda/cuda_handles.h"
#include "backend/host_function.h"
#include "backend/sticky_error.h"

namespace fastloader {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device);

  /// A generation older than the latest is done: by the contract's rule an event is not recorded
  /// while a ticket on it is outstanding. CUDA itself knows only the latest.
  bool done(uint64_t generation) const override;
  void wait_host(uint64_t generation) override;

  cudaEvent_t get() const { return event_.get(); }
  int device() const { return event_.device(); }
  bool is_latest(uint64_t generation) const {
    return generation == generation_.load(std::memory_order_relaxed);
  }
  /// The event was just recorded.
  uint64_t advance() { return generation_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  const CudaEventHandle event_;
  // Partners: advance (the recording thread) and is_latest (any holder of a ticket). Relaxed
  // suffices. A ticket reaches its holder by an order of its own, so the holder never sees less
  // than the ticket's generation. The driver orders the work itself.
  std::atomic<uint64_t> generation_{0};
};

/// A stream made here, or one made elsewhere. Calls that fail are remembered, not thrown: the
/// contract's `check` and `synchronize` tell, at a point where the caller can deal with it.
class CudaStream final : public Stream, public HostFunctionStream {
 public:
  /// A new stream that does not wait for the legacy default stream, nor that for it.
  explicit CudaStream(int device);
  /// A stream made elsewhere.
  CudaStream(int device, uintptr_t handle);
  ~CudaStream() override;

  void copy_h2d_async(void* dst, const void* src, size_t bytes) override;
  void copy_d2d_async(void* dst, const void* src, size_t bytes) override;
  void copy_d2h_async(void* dst, const void* src, size_t bytes) override;
  void normalize_async(const NormalizeSpec& spec, const void* in, void* out) override;
  void augment_async(const AugmentSpec& spec, const void* records, const void* in,
                     void* out) override;
  Ticket record(Event& event) override;
  void wait(const Ticket& ticket) override;
  void synchronize() override;
  void check() override;
  uintptr_t handle() const override { return handle_; }
#ifdef FASTLOADER_TEST_HOOKS
  void host_function_async(std::function<void()> function) override;
#endif

 private:
  void copy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind);
  /// Makes the call on this stream's device and remembers its failure.
  template <typename Body>
  bool attempt(const CudaCall& call, Body body);
  /// False, and remembered, if the device for `call` could not be selected.
  bool selected(const DeviceGuard& guard, const CudaCall& call);
  /// False, and remembered, for a failure.
  bool kept(cudaError_t status, const CudaCall& call);
  /// Waits for the stream even where its device cannot be selected, as far as CUDA can.
  void wait_on_host();
  /// Call it with this stream's device selected.
  bool being_captured() const;
  bool is_default() const { return handle_ <= reinterpret_cast<uintptr_t>(cudaStreamPerThread); }

  const int device_;
  const std::unique_ptr<CudaStreamHandle> owned_;  // null: made elsewhere
  const uintptr_t handle_;
  const cudaStream_t stream_;
  const std::thread::id wrapped_by_ = std::this_thread::get_id();
  // Shared with host functions still queued on a stream that is not ours to drain.
  const std::shared_ptr<StickyError> error_ = std::make_shared<StickyError>();
};

}  // namespace fastloader
