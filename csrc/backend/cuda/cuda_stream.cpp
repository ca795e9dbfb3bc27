#include "backend/cuda/cuda_stream.h"

#include <exception>
#include <string>
#include <utility>

#include "backend/checks.h"
#include "backend/cuda/normalize_launch.h"
#include "base/error.h"

namespace fastloader {
namespace {

cudaEvent_t make_event(int device) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  // Blocking: a thread that waits sleeps; by default it would spin on a core the decoders need.
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
             FASTLOADER_CUDA_CALL("cudaEventCreateWithFlags"), device);
  return event;
}

cudaStream_t make_stream(int device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             FASTLOADER_CUDA_CALL("cudaStreamCreateWithFlags"), device);
  return stream;
}

CudaEvent& cuda_event(Event& event) {
  auto* mine = dynamic_cast<CudaEvent*>(&event);
  if (mine == nullptr) throw InvalidArgument("this event belongs to another backend");
  return *mine;
}

/// The call was refused because some stream is being captured; it says nothing about the work.
bool is_capture_error(cudaError_t status) {
  return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

#ifdef FASTLOADER_TEST_HOOKS
struct HostFunction {
  std::function<void()> function;
  std::shared_ptr<StickyError> error;
  int device;
};

void CUDART_CB run_host_function(void* data) {
  const std::unique_ptr<HostFunction> task(static_cast<HostFunction*>(data));
  const std::string name =
      "host_function failed on CUDA device " + std::to_string(task->device) + ": ";
  try {
    task->function();
  } catch (const std::exception& failure) {
    task->error->fail(name + failure.what());
  } catch (...) {
    task->error->fail(name + "unknown exception");
  }
}
#endif

}  // namespace

CudaEvent::CudaEvent(int device) : event_(device, make_event(device)) {}

bool CudaEvent::done(uint64_t generation) const {
  if (!is_latest(generation)) return true;
  const DeviceGuard guard(device(), std::nothrow);
  const cudaError_t status = cudaEventQuery(get());
  if (status == cudaSuccess) return true;
  cudaGetLastError();
  // Also after a failure: nothing says that the event may be recorded again. A thread that waits on
  // a device which has failed wakes in wait_host.
  return false;
}

void CudaEvent::wait_host(uint64_t generation) {
  if (!is_latest(generation)) return;
  const DeviceGuard guard(device());
  cuda_check(cudaEventSynchronize(get()), FASTLOADER_CUDA_CALL("cudaEventSynchronize"), device());
}

CudaStream::CudaStream(int device)
    : device_(device),
      owned_(std::make_unique<CudaStreamHandle>(device, make_stream(device))),
      handle_(reinterpret_cast<uintptr_t>(owned_->get())),
      stream_(owned_->get()) {}

CudaStream::CudaStream(int device, uintptr_t handle)
    : device_(device),
      handle_(handle),
      stream_(handle == 0 ? cudaStreamLegacy : reinterpret_cast<cudaStream_t>(handle)) {}

CudaStream::~CudaStream() {
  if (owned_ == nullptr || !owned_->lifetime().may_release()) return;
  const DeviceGuard guard(device_, std::nothrow);
  cuda_forgive(cudaStreamSynchronize(stream_), FASTLOADER_CUDA_CALL("cudaStreamSynchronize"),
               device_);
}

bool CudaStream::selected(const DeviceGuard& guard, const CudaCall& call) {
  if (guard.status() == cudaSuccess) return true;
  error_->fail(cuda_failure(guard.status(), FASTLOADER_CUDA_CALL("cudaSetDevice"), device_) +
               ", on the way to " + call.name);
  return false;
}

bool CudaStream::kept(cudaError_t status, const CudaCall& call) {
  if (status == cudaSuccess) return true;
  error_->fail(cuda_failure(status, call, device_));
  return false;
}

template <typename Body>
bool CudaStream::attempt(const CudaCall& call, Body body) {
  const DeviceGuard guard(device_, std::nothrow);
  return selected(guard, call) && kept(body(), call);
}

void CudaStream::wait_on_host() {
  const CudaCall call = FASTLOADER_CUDA_CALL("cudaStreamSynchronize");
  const DeviceGuard guard(device_, std::nothrow);
  // A stream that was made knows its device. The handle of a default stream means the current
  // device's, so that waiting for it on another device would order nothing.
  if (is_default() && !selected(guard, call)) return;
  kept(cudaStreamSynchronize(stream_), call);
}

void CudaStream::copy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  attempt(FASTLOADER_CUDA_CALL("cudaMemcpyAsync"),
          [&] { return cudaMemcpyAsync(dst, src, bytes, kind, stream_); });
}

void CudaStream::copy_h2d_async(void* dst, const void* src, size_t bytes) {
  copy(dst, src, bytes, cudaMemcpyHostToDevice);
}

void CudaStream::copy_d2d_async(void* dst, const void* src, size_t bytes) {
  copy(dst, src, bytes, cudaMemcpyDeviceToDevice);
}

void CudaStream::copy_d2h_async(void* dst, const void* src, size_t bytes) {
  copy(dst, src, bytes, cudaMemcpyDeviceToHost);
}

void CudaStream::normalize_async(const NormalizeSpec& spec, const void* in, void* out) {
  require_normalizable(spec, in, out);
  attempt(FASTLOADER_CUDA_CALL("launch of normalize"),
          [&] { return launch_normalize(spec, in, out, stream_); });
}

void CudaStream::augment_async(const AugmentSpec& spec, const void* records, const void* in,
                               void* out) {
  require_augmentable(spec, records, in, out);
  attempt(FASTLOADER_CUDA_CALL("launch of augment"),
          [&] { return launch_augment(spec, records, in, out, stream_); });
}

Ticket CudaStream::record(Event& event) {
  CudaEvent& mine = cuda_event(event);
  if (mine.device() != device_) {
    throw InvalidArgument("an event of CUDA device " + std::to_string(mine.device()) +
                          " cannot be recorded on a stream of device " + std::to_string(device_));
  }
  bool captured = false;
  const bool recorded = attempt(FASTLOADER_CUDA_CALL("cudaEventRecord"), [&] {
    captured = being_captured();
    return captured ? cudaSuccess : cudaEventRecord(mine.get(), stream_);
  });
  if (captured) {
    // CUDA would make the record a node of the graph, and whatever waits for the ticket a part of
    // it.
    throw InvalidArgument("an event cannot be recorded on a stream of CUDA device " +
                          std::to_string(device_) + " that is being captured into a graph");
  }
  if (recorded) return Ticket{&event, mine.advance()};
  // Without a record nothing tells when the work before it is done, so wait for that work here:
  // the source of a copy may be reused as soon as a thread sees the ticket done.
  wait_on_host();
  return Ticket{};
}

void CudaStream::wait(const Ticket& ticket) {
  if (ticket.event == nullptr) return;
  CudaEvent& mine = cuda_event(*ticket.event);
  if (!mine.is_latest(ticket.generation)) return;  // done, see CudaEvent::done
  // Nothing from outside may enter a capture; trying to would end it. An iterator that is collected
  // in the middle of one comes here.
  bool captured = false;
  // The handle means another stream here, which would be ordered in the place of the one meant.
  const bool elsewhere =
      stream_ == cudaStreamPerThread && wrapped_by_ != std::this_thread::get_id();
  const bool waits = attempt(FASTLOADER_CUDA_CALL("cudaStreamWaitEvent"), [&] {
    captured = being_captured();
    return captured || elsewhere ? cudaSuccess : cudaStreamWaitEvent(stream_, mine.get(), 0);
  });
  if (waits && !captured && !elsewhere) return;
  // The order must hold even so; the host can make it, and an event needs no current device.
  const DeviceGuard guard(device_, std::nothrow);
  kept(cudaEventSynchronize(mine.get()), FASTLOADER_CUDA_CALL("cudaEventSynchronize"));
}

bool CudaStream::being_captured() const {
  if (owned_ != nullptr) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answered = cudaStreamIsCapturing(stream_, &status);
  if (answered == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  // The default stream cannot be asked while a capture depends on it. Any other failure will be
  // met again by the call that follows.
  cudaGetLastError();
  return is_capture_error(answered);
}

void CudaStream::synchronize() {
  wait_on_host();
  check();
}

void CudaStream::check() { error_->rethrow(); }

#ifdef FASTLOADER_TEST_HOOKS
void CudaStream::host_function_async(std::function<void()> function) {
  auto task = std::make_unique<HostFunction>(HostFunction{std::move(function), error_, device_});
  if (attempt(FASTLOADER_CUDA_CALL("cudaLaunchHostFunc"),
              [&] { return cudaLaunchHostFunc(stream_, run_host_function, task.get()); })) {
    static_cast<void>(task.release());  // run_host_function owns it now
  }
}
#endif

}  // namespace fastloader
