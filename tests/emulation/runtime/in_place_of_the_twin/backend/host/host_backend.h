#pragma once

// Put before the project's headers, this runs the twin's tests on the CUDA backend: what they write
// as HostBackend is CUDA, and their options become the emulator's.

#include_next <backend/host/host_backend.h>
#include <string>
#include <utility>

#include "backend/registry.h"
#include "base/error.h"
#include "cuda_emulated.h"

namespace fastloader {

/// The default stream as the twin has it: waiting on it blocks the caller.
class BlockingStream final : public Stream {
 public:
  explicit BlockingStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void copy_h2d_async(void* dst, const void* src, size_t bytes) override {
    stream_->copy_h2d_async(dst, src, bytes);
  }
  void copy_d2d_async(void* dst, const void* src, size_t bytes) override {
    stream_->copy_d2d_async(dst, src, bytes);
  }
  void copy_d2h_async(void* dst, const void* src, size_t bytes) override {
    stream_->copy_d2h_async(dst, src, bytes);
  }
  void normalize_async(const NormalizeSpec& spec, const void* in, void* out) override {
    stream_->normalize_async(spec, in, out);
  }
  void augment_async(const AugmentSpec& spec, const void* records, const void* in,
                     void* out) override {
    stream_->augment_async(spec, records, in, out);
  }
  Ticket record(Event& event) override { return stream_->record(event); }
  void wait(const Ticket& ticket) override {
    stream_->wait(ticket);
    try {
      stream_->synchronize();
    } catch (const BackendError&) {  // the twin's wait does not tell either
    }
  }
  void synchronize() override { stream_->synchronize(); }
  void check() override { stream_->check(); }
  uintptr_t handle() const override { return stream_->handle(); }

 private:
  const std::unique_ptr<Stream> stream_;
};

/// One of them at a time: the emulator's options and faults are the process's.
class CudaInPlaceOfTheTwin final : public Backend {
 public:
  explicit CudaInPlaceOfTheTwin(const HostBackendOptions& options = {})
      : cuda_(open_backend("cuda")) {
    cuda_emulated::Options set;
    if (options.delay_seed != 0) {  // otherwise the environment's delays stay
      set.delay_seed = options.delay_seed;
      set.max_delay_us = static_cast<unsigned>(options.max_delay.count());
    }
    set.h2d_delay_us = static_cast<unsigned>(options.copy_delay.count());
    set.pageable_copies_wait = false;  // the tests queue such copies behind closed gates
    cuda_emulated::set_options(set);
    if (options.fail_on_call > 0 && options.delay_seed > 0) {
      cuda_emulated::inject({"work", options.fail_on_call, cudaErrorUnknown});  // refused at once
    } else if (options.fail_on_call > 0) {
      // As on the twin, when it is executed, which costs CUDA the whole context.
      cuda_emulated::inject({"exec:copy", options.fail_on_call, cudaErrorLaunchFailure});
      cuda_emulated::leave_on_purpose();
    }
    if (options.fail_pinning) {
      cuda_emulated::Fault fault{"cudaHostRegister", 1, cudaErrorMemoryAllocation, true};
      fault.words = "pinning was made to fail";
      cuda_emulated::inject(fault);
    }
  }
  ~CudaInPlaceOfTheTwin() override {
    cuda_emulated::drain();
    cuda_emulated::repair();
    cuda_emulated::clear_faults();
    cuda_emulated::set_options({});
  }

  /// The tests expect the twin's name in messages.
  const char* name() const override { return "host"; }
  int device_count() const override { return cuda_.device_count(); }
  void attach_thread(int device) override { cuda_.attach_thread(device); }
  std::unique_ptr<Stream> create_stream(int device) override { return cuda_.create_stream(device); }
  std::unique_ptr<Stream> wrap_external(int device, uintptr_t handle) override {
    // CUDA cannot tell a handle from nonsense; the twin can, and its tests ask for it.
    constexpr uintptr_t kLastDefaultStream = 2;
    constexpr uintptr_t kFirstAddress = 4096;
    if (handle > kLastDefaultStream && handle < kFirstAddress) {
      throw InvalidArgument("no stream has the handle " + std::to_string(handle));
    }
    auto stream = cuda_.wrap_external(device, handle);
    if (handle != 0) return stream;
    return std::make_unique<BlockingStream>(std::move(stream));
  }
  std::unique_ptr<Event> create_event(int device) override { return cuda_.create_event(device); }
  std::unique_ptr<HostBlock> allocate_host(int device, size_t bytes) override {
    return cuda_.allocate_host(device, bytes);
  }
  std::unique_ptr<DeviceBlock> allocate_device(int device, size_t bytes) override {
    return cuda_.allocate_device(device, bytes);
  }

 private:
  Backend& cuda_;
};

}  // namespace fastloader

#define HostBackend CudaInPlaceOfTheTwin
