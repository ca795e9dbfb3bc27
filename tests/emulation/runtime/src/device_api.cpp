#include "state.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

using namespace cuda_emulated;

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (in_forked_child()) {  // "solely to return a compile-time constant", as its documentation says
    *version = CUDART_VERSION;
    return cudaSuccess;
  }
  Call call("cudaRuntimeGetVersion", Call::kProbe);
  if (call.refused()) return call.end();
  *version = CUDART_VERSION;
  return call.end(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  Call call("cudaDriverGetVersion", Call::kProbe);
  if (call.refused()) return call.end();
  *version = CUDART_VERSION;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount", Call::kProbe);
  if (call.refused()) return call.end();
  state().pid = getpid();  // initialises the driver: from here on a forked child has no CUDA
  *count = state().options.devices;
  return call.end(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties", Call::kProbe);
  if (call.refused()) return call.end();
  if (device < 0 || device >= state().options.devices) return call.end(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "emulated device %d", device);
  properties->major = 9;
  properties->totalGlobalMem = kDeviceBytes;
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int room, int device) {
  Call call("cudaDeviceGetPCIBusId", Call::kProbe);
  if (call.refused()) return call.end();
  if (device < 0 || device >= state().options.devices) return call.end(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(room), "0000:%02X:00.0", 0xE0 + device);
  return call.end(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  t_thread.selecting = device;
  Call call("cudaSetDevice", Call::kPlain);
  t_thread.selecting = -1;
  if (call.refused()) return call.end();
  if (device < 0 || device >= state().options.devices) return call.end(cudaErrorInvalidDevice);
  t_thread.device = device;
  set_context_locked(device);
  const cudaError_t broken = state().devices[device].broken;
  return call.end(state().options.set_device_fails_on_broken ? broken : cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  Call call("cudaGetDevice", Call::kPlain);
  if (call.refused()) return call.end();
  *device = current_device();
  return call.end(cudaSuccess);
}

cudaError_t cudaGetLastError() {
  Call call("cudaGetLastError", Call::kDriver | Call::kProbe);
  if (call.refused() && call.end() != cudaErrorInitializationError) return call.end();
  const cudaError_t last = t_thread.last;
  t_thread.last = cudaSuccess;
  // A broken context is never forgotten.
  if (t_thread.context >= 0) {
    const cudaError_t broken = state().devices[t_thread.context].broken;
    if (broken != cudaSuccess) return broken;
  }
  return last;
}

cudaError_t cudaPeekAtLastError() { return t_thread.last; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(error) \
  case error:       \
    return #error
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorInitializationError);
    NAME(cudaErrorCudartUnloading);
    NAME(cudaErrorInsufficientDriver);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorInvalidResourceHandle);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorIllegalAddress);
    NAME(cudaErrorLaunchFailure);
    NAME(cudaErrorECCUncorrectable);
    NAME(cudaErrorNotPermitted);
    NAME(cudaErrorUnknown);
    NAME(cudaErrorHostMemoryAlreadyRegistered);
    NAME(cudaErrorHostMemoryNotRegistered);
    NAME(cudaErrorInvalidConfiguration);
    NAME(cudaErrorInvalidDeviceFunction);
    NAME(cudaErrorSymbolNotFound);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureUnjoined);
    NAME(cudaErrorStreamCaptureIsolation);
    NAME(cudaErrorStreamCaptureImplicit);
    NAME(cudaErrorCapturedEvent);
#undef NAME
    default:
      return "cudaErrorOfTheEmulator";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  if (in_forked_child()) return "as emulated";  // the lock may be held for ever there
  const Inside inside;
  const auto words = state().words.find(error);
  return words == state().words.end() ? "as emulated" : words->second;
}

}  // extern "C"
