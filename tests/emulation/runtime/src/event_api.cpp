#include "state.h"

using namespace cuda_emulated;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  Call call("cudaEventCreateWithFlags", Call::kContext);
  if (call.refused()) return call.end();
  if ((flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess}) !=
      0) {
    return call.end(cudaErrorInvalidValue);
  }
  auto* event = new Event;
  event->device = current_device();
  event->flags = flags;
  state().events.insert(event);
  *out = reinterpret_cast<cudaEvent_t>(event);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Call call("cudaEventDestroy", Call::kContext);
  if (call.refused()) return call.end();
  Event* event = find_event_locked(handle, call.name());
  if (event == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  event->destroyed = true;
  state().events.erase(event);
  state().destroyed_events.insert(event);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  Call call("cudaEventRecord", Call::kContext);
  if (call.refused()) return call.end();
  Event* event = find_event_locked(event_handle, call.name());
  if (event == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  const Target to = target(handle, call);
  if (to.status != cudaSuccess) return call.end(to.status);
  if (event->device != to.stream->device) {
    misuse(call.name(), "an event of device %d on a stream of device %d", event->device,
           to.stream->device);
    return call.end(cudaErrorInvalidResourceHandle);
  }
  if (to.stream->capture != nullptr) {
    event->captured = to.stream->capture;
    event->captured_on = to.stream;
    event->latest = nullptr;
    note_locked("an event was recorded into a capture");
    return call.end(cudaSuccess);
  }
  event->captured = nullptr;
  const auto operation = std::make_shared<Operation>();
  operation->what = "cudaEventRecord";
  enqueue_locked(*to.stream, operation);
  event->latest = operation;
  return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Call call("cudaEventQuery", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  Event* event = find_event_locked(handle, call.name());
  if (event == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  if (event->captured != nullptr) {
    invalidate_locked(*event->captured);
    return call.end(cudaErrorCapturedEvent);
  }
  const cudaError_t broken = state().devices[event->device].broken;
  if (broken != cudaSuccess) return call.end(broken);
  if (event->latest != nullptr && !event->latest->done) return call.end(cudaErrorNotReady);
  if (event->latest != nullptr) happens_after(&event->latest->done_point);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Call call("cudaEventSynchronize", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  Event* event = find_event_locked(handle, call.name());
  if (event == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  if (event->captured != nullptr) {
    invalidate_locked(*event->captured);
    return call.end(cudaErrorCapturedEvent);
  }
  if ((event->flags & cudaEventBlockingSync) == 0) note_locked("cudaEventSynchronize would spin");
  const OperationRef latest = event->latest;
  call.settle(latest);
  return call.end(state().devices[event->device].broken);
}

}  // extern "C"
