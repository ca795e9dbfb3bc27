#include "state.h"

using namespace cuda_emulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  Call call("cudaStreamCreateWithFlags", Call::kContext);
  if (call.refused()) return call.end();
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) return call.end(cudaErrorInvalidValue);
  Stream* stream =
      make_stream_locked(current_device(), (flags & cudaStreamNonBlocking) == 0, false);
  state().streams.insert(stream);
  *out = reinterpret_cast<cudaStream_t>(stream);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Call call("cudaStreamDestroy", Call::kContext);
  if (call.refused()) return call.end();
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    misuse(call.name(), "given a default stream");
    return call.end(cudaErrorInvalidResourceHandle);
  }
  Stream* stream = find_stream_locked(handle, call.name());
  if (stream == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) misuse(call.name(), "the stream is being captured");
  destroy_stream_locked(*stream);  // what is queued is still carried out
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Call call("cudaStreamSynchronize", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  const Target to = target(handle, call);
  if (to.status != cudaSuccess) return call.end(to.status);
  if (to.stream->capture != nullptr) {
    invalidate_locked(*to.stream->capture);
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  if (to.stream->legacy) {  // it also waits for the streams that it would wait for
    const auto marker = std::make_shared<Operation>();
    marker->what = "synchronising the legacy stream";
    enqueue_locked(*to.stream, marker);
  }
  return call.end(call.wait_for(to.stream->tail));
}

cudaError_t cudaDeviceSynchronize() {
  Call call("cudaDeviceSynchronize", Call::kContext | Call::kUnsafeInCapture);
  if (call.refused()) return call.end();
  std::vector<OperationRef> tails{state().devices[current_device()].legacy->tail};
  for (Stream* stream : state().streams) {
    if (stream->device == current_device()) tails.push_back(stream->tail);
  }
  for (const OperationRef& tail : tails) call.settle(tail);
  return call.end(state().devices[current_device()].broken);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  Call call("cudaStreamWaitEvent", Call::kContext);
  if (call.refused()) return call.end();
  Event* event = find_event_locked(event_handle, call.name());
  if (event == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  const Target to = target(handle, call);
  if (to.status != cudaSuccess) return call.end(to.status);
  if (flags != 0) return call.end(cudaErrorInvalidValue);
  Stream& stream = *to.stream;
  if (event->captured != nullptr) {
    if (stream.capture == nullptr) {  // the fork of a capture
      note_locked("cudaStreamWaitEvent drew stream " + std::to_string(stream.number) +
                  " into a capture");
      stream.capture = event->captured;
      stream.capture->streams.insert(&stream);
      stream.capture->unjoined.insert(&stream);
      return call.end(cudaSuccess);
    }
    if (stream.capture != event->captured) {
      invalidate_locked(*stream.capture);
      return call.end(cudaErrorStreamCaptureMerge);
    }
    stream.capture->unjoined.erase(event->captured_on);
    return call.end(cudaSuccess);
  }
  if (stream.capture != nullptr) {
    if (event->latest == nullptr) return call.end(cudaSuccess);
    invalidate_locked(*stream.capture);
    return call.end(cudaErrorStreamCaptureIsolation);
  }
  const auto operation = std::make_shared<Operation>();
  operation->what = "cudaStreamWaitEvent";
  if (event->latest != nullptr) operation->after.push_back(event->latest);  // as of now, for good
  enqueue_locked(stream, operation);
  return call.end(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  Call call("cudaLaunchHostFunc", Call::kContext);
  if (call.refused()) return call.end();
  const Target to = target(handle, call);
  if (to.status != cudaSuccess) return call.end(to.status);
  const auto operation = std::make_shared<Operation>();
  operation->what = "a host function";
  operation->host_function = true;
  operation->run = [function, data] { function(data); };
  submit(*to.stream, operation);
  return call.end(cudaSuccess);
}

}  // extern "C"
