#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/host/host_backend.h"
#include "backend/sticky_error.h"

namespace fastloader::testing {

/// Calls of a HookedBackend's streams that are on the calling thread's stack.
inline thread_local int t_calls_into_backend = 0;

struct Refused {};

/// The twin, with hooks on the thread that calls. `before` runs ahead of every call of a stream
/// that the backend made itself, so of the prefetcher's copy and kernel streams; `before_wrapped`
/// ahead of every call of a wrapped one, so of the consumer's. A hook may block, to stop its thread
/// in the middle of a batch or of a credit, or throw. Where it throws Refused, the call is not made
/// and the stream keeps that for `check`, as a CUDA stream does with what the device refuses.
class HookedBackend final : public Backend {
 public:
  using Hook = std::function<void(const char* call)>;

  explicit HookedBackend(const HostBackendOptions& options = {}) : twin_(options) {}

  /// Before any prefetcher exists.
  void set_before(Hook before) { *before_ = std::move(before); }
  /// While no wrapped stream is being called.
  void set_before_wrapped(Hook before) { *before_wrapped_ = std::move(before); }

  /// Made so far.
  int events() const { return events_; }
  /// Of the only prefetcher, which makes both before its threads.
  uintptr_t copy_stream() const { return streams_.at(0); }
  uintptr_t kernel_stream() const { return streams_.at(1); }
  /// Its streams have no hooks, and serve gates.
  HostBackend& twin() { return twin_; }

  const char* name() const override { return twin_.name(); }
  int device_count() const override { return twin_.device_count(); }
  void attach_thread(int device) override { twin_.attach_thread(device); }
  std::unique_ptr<Stream> create_stream(int device) override {
    auto stream = twin_.create_stream(device);
    streams_.push_back(stream->handle());
    return std::make_unique<HookedStream>(std::move(stream), before_);
  }
  std::unique_ptr<Stream> wrap_external(int device, uintptr_t handle) override {
    return std::make_unique<HookedStream>(twin_.wrap_external(device, handle), before_wrapped_);
  }
  std::unique_ptr<Event> create_event(int device) override {
    ++events_;
    return twin_.create_event(device);
  }
  std::unique_ptr<HostBlock> allocate_host(int device, size_t bytes) override {
    return twin_.allocate_host(device, bytes);
  }
  std::unique_ptr<DeviceBlock> allocate_device(int device, size_t bytes) override {
    return twin_.allocate_device(device, bytes);
  }

 private:
  class HookedStream final : public Stream {
   public:
    HookedStream(std::unique_ptr<Stream> stream, std::shared_ptr<Hook> before)
        : stream_(std::move(stream)), before_(std::move(before)) {}

    void copy_h2d_async(void* dst, const void* src, size_t bytes) override {
      call("copy_h2d", [&] { stream_->copy_h2d_async(dst, src, bytes); });
    }
    void copy_d2d_async(void* dst, const void* src, size_t bytes) override {
      call("copy_d2d", [&] { stream_->copy_d2d_async(dst, src, bytes); });
    }
    void copy_d2h_async(void* dst, const void* src, size_t bytes) override {
      call("copy_d2h", [&] { stream_->copy_d2h_async(dst, src, bytes); });
    }
    void normalize_async(const NormalizeSpec& spec, const void* in, void* out) override {
      call("normalize", [&] { stream_->normalize_async(spec, in, out); });
    }
    void augment_async(const AugmentSpec& spec, const void* records, const void* in,
                       void* out) override {
      call("augment", [&] { stream_->augment_async(spec, records, in, out); });
    }
    Ticket record(Event& event) override {
      Ticket ticket;
      call("record", [&] { ticket = stream_->record(event); });
      return ticket;
    }
    void wait(const Ticket& ticket) override {
      call("wait", [&] { stream_->wait(ticket); });
    }
    void synchronize() override {
      call("synchronize", [&] { stream_->synchronize(); });
      check();
    }
    void check() override {
      refused_.rethrow();
      stream_->check();
    }
    uintptr_t handle() const override { return stream_->handle(); }

   private:
    struct OnTheStack {
      OnTheStack() { ++t_calls_into_backend; }
      OnTheStack(const OnTheStack&) = delete;
      OnTheStack& operator=(const OnTheStack&) = delete;
      ~OnTheStack() { --t_calls_into_backend; }
    };

    template <typename Body>
    void call(const char* name, Body body) {
      const OnTheStack counted;
      try {
        if (*before_) (*before_)(name);
      } catch (const Refused&) {
        refused_.fail(std::string(name) + " was refused");
        return;
      }
      body();
    }

    const std::unique_ptr<Stream> stream_;
    const std::shared_ptr<Hook> before_;
    StickyError refused_;
  };

  HostBackend twin_;
  std::atomic<int> events_{0};
  std::vector<uintptr_t> streams_;  // handles
  const std::shared_ptr<Hook> before_ = std::make_shared<Hook>();
  const std::shared_ptr<Hook> before_wrapped_ = std::make_shared<Hook>();
};

}  // namespace fastloader::testing
