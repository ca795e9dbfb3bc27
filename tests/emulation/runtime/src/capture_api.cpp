#include "state.h"

using namespace cuda_emulated;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  Call call("cudaThreadExchangeStreamCaptureMode", Call::kPlain);
  if (call.refused()) return call.end();
  ensure_context_locked(call.name());
  std::swap(t_thread.mode, *mode);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Call call("cudaStreamIsCapturing", Call::kContext);
  if (call.refused()) return call.end();
  Stream* stream = find_stream_locked(handle, call.name());
  if (stream == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  if (stream->legacy) {
    for (const auto& capture : state().captures) {
      for (Stream* each : capture->streams) {
        // This one does not invalidate.
        if (each->device == stream->device && each->blocking) {
          return call.end(cudaErrorStreamCaptureImplicit);
        }
      }
    }
  }
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->valid   ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Call call("cudaStreamBeginCapture", Call::kContext);
  if (call.refused()) return call.end();
  Stream* stream = find_stream_locked(handle, call.name());
  if (stream == nullptr || stream->legacy || stream->capture != nullptr) {
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = t_thread.number;
  capture->origin = stream;
  capture->streams.insert(stream);
  stream->capture = capture;
  state().captures.insert(capture);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Call call("cudaStreamEndCapture", Call::kContext);
  if (call.refused()) return call.end();
  Stream* stream = find_stream_locked(handle, call.name());
  if (stream == nullptr || stream->capture == nullptr) return call.end(cudaErrorInvalidValue);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return call.end(cudaErrorStreamCaptureUnmatched);
  for (Stream* each : capture->streams) each->capture = nullptr;
  state().captures.erase(capture);
  *graph = nullptr;
  if (!capture->valid) return call.end(cudaErrorStreamCaptureInvalidated);
  return call.end(capture->unjoined.empty() ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
}

}  // extern "C"
