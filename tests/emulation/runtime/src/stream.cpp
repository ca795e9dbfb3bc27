#include "state.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>

namespace cuda_emulated {
namespace {

/// What CUDA says of work put on a stream that is being captured, or would depend on one that is.
cudaError_t capture_refusal(const Stream& stream) {
  if (!stream.legacy) return cudaSuccess;
  for (const auto& capture : state().captures) {
    for (Stream* each : capture->streams) {
      if (each->device == stream.device && each->blocking) {
        invalidate_locked(*capture);
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace

Stream* make_stream_locked(int device, bool blocking, bool legacy) {
  State& s = state();
  auto* stream = new Stream;
  stream->device = device;
  stream->number = ++s.streams_made;
  stream->blocking = blocking;
  stream->legacy = legacy;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, work, stream) != 0) std::abort();
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return stream;
}

Stream* find_stream_locked(cudaStream_t handle, const char* by) {
  State& s = state();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return s.devices[current_device()].legacy;
  }
  if (handle == cudaStreamPerThread) {
    Stream*& mine = t_thread.per_thread[current_device()];
    if (mine == nullptr) mine = make_stream_locked(current_device(), true, false);
    return mine;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (s.streams.count(stream) > 0) return stream;
  misuse(by, "given %s stream %p",
         s.destroyed_streams.count(stream) > 0 ? "the destroyed" : "an unknown", handle);
  return nullptr;
}

Event* find_event_locked(cudaEvent_t handle, const char* by) {
  State& s = state();
  auto* event = reinterpret_cast<Event*>(handle);
  if (s.events.count(event) > 0) return event;
  misuse(by, "given %s event %p",
         s.destroyed_events.count(event) > 0 ? "the destroyed" : "an unknown", handle);
  return nullptr;
}

void enqueue_locked(Stream& stream, const OperationRef& operation) {
  State& s = state();
  operation->stream = &stream;
  const auto add = [&](const OperationRef& before) {
    if (before != nullptr && !before->done) operation->after.push_back(before);
  };
  if (stream.legacy) {
    for (Stream* other : s.streams) {
      if (other->blocking && other->device == stream.device) add(other->tail);
    }
    for (Stream* other : t_thread.per_thread) {
      if (other != nullptr && other->device == stream.device) add(other->tail);
    }
  } else if (stream.blocking) {
    add(s.devices[stream.device].legacy->tail);
  }
  for (const auto& memory : operation->uses) ++memory->pending;
  happens_before(&operation->issued_point);
  ++s.pending;
  ++s.operations;
  stream.queue.push_back(operation);
  stream.tail = operation;
  s.changed.notify_all();
}

void destroy_stream_locked(Stream& stream) {
  State& s = state();
  stream.destroyed = true;
  s.streams.erase(&stream);
  s.destroyed_streams.insert(&stream);
  s.changed.notify_all();
}

void invalidate_locked(Capture& capture) { capture.valid = false; }

Target target(cudaStream_t handle, const Call& call) {
  Target found;
  found.stream = find_stream_locked(handle, call.name());
  if (found.stream == nullptr) {
    found.status = cudaErrorInvalidResourceHandle;
  } else if (state().devices[found.stream->device].broken != cudaSuccess) {
    found.status = state().devices[found.stream->device].broken;
  } else {
    found.status = capture_refusal(*found.stream);
  }
  return found;
}

bool submit(Stream& stream, const OperationRef& operation) {
  if (stream.capture != nullptr) return false;
  enqueue_locked(stream, operation);
  return true;
}

}  // namespace cuda_emulated
