#include "state.h"

#include <cstring>

using namespace cuda_emulated;

namespace {

CUresult emulated_cuCtxGetCurrent(CUcontext* context) {
  Call call("cuCtxGetCurrent", Call::kDriver);
  if (call.refused()) return static_cast<CUresult>(call.end());
  *context = t_thread.context < 0
                 ? nullptr
                 : reinterpret_cast<CUcontext>(&state().devices[t_thread.context].context);
  return CUDA_SUCCESS;
}

CUresult emulated_cuCtxSetCurrent(CUcontext context) {
  Call call("cuCtxSetCurrent", Call::kDriver);
  if (call.refused()) return static_cast<CUresult>(call.end());
  if (context == nullptr) {
    t_thread.context = -1;
    return CUDA_SUCCESS;
  }
  for (int device = 0; device < state().options.devices; ++device) {
    if (context == reinterpret_cast<CUcontext>(&state().devices[device].context)) {
      t_thread.context = device;
      return CUDA_SUCCESS;
    }
  }
  misuse(call.name(), "%p is no context", static_cast<void*>(context));
  return CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,

                                             cudaDriverEntryPointQueryResult* result) {
  Call call("cudaGetDriverEntryPointByVersion", Call::kPlain);
  if (call.refused()) return call.end();
  *function = nullptr;
  *result = cudaDriverEntryPointSymbolNotFound;
  if (flags != cudaEnableDefault) return call.end(cudaErrorInvalidValue);
  constexpr unsigned kBothSince = 4000;
  void* found = nullptr;
  if (std::strcmp(symbol, "cuCtxGetCurrent") == 0) {
    found = reinterpret_cast<void*>(&emulated_cuCtxGetCurrent);
  } else if (std::strcmp(symbol, "cuCtxSetCurrent") == 0) {
    found = reinterpret_cast<void*>(&emulated_cuCtxSetCurrent);
  }
  if (found == nullptr) return call.end(cudaSuccess);
  *result = cudaDriverEntryPointVersionNotSufficent;
  if (version < kBothSince) return call.end(cudaSuccess);
  *function = found;
  *result = cudaDriverEntryPointSuccess;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, result);
}

}  // extern "C"
