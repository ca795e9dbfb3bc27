// What nvcc puts into an object: it registers each kernel under its name, and `<<<>>>` becomes
// push configuration, call the stub, pop configuration, launch.

#include <cxxabi.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace cuda_emulated;

namespace {

constexpr int kMostThreads = 1024;  // of a block

struct Kernel {
  std::string mangled;
  std::string name;  // "kernel<Argument>"
};

std::map<const void*, Kernel*>& kernels() {  // by the host's stub; written before main
  static auto* const all = new std::map<const void*, Kernel*>;
  return *all;
}

/// "void a::b::kernel<T<1> >(x, y)" to "kernel<T<1>>".
std::string short_name(const std::string& demangled) {
  const size_t open = demangled.find('<');
  int depth = 0;
  size_t close = open;
  for (; close < demangled.size(); ++close) {
    if (demangled[close] == '<') ++depth;
    if (demangled[close] == '>' && --depth == 0) break;
  }
  if (open == std::string::npos || close == demangled.size()) return demangled;
  const size_t colon = demangled.rfind(':', open);
  const size_t begin = colon == std::string::npos ? 0 : colon + 1;
  std::string name = demangled.substr(begin, close + 1 - begin);
  for (size_t at; (at = name.find("> >")) != std::string::npos;) name.erase(at + 1, 1);
  return name;
}

/// Modules are loaded lazily: the first use of a kernel on a device may wait for all its work.
void load_locked(const Kernel& kernel) {
  State& s = state();
  if (!s.devices[current_device()].loaded.insert(&kernel).second) return;
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  ++s.counts[thread]["(kernel load)"];
}

cudaError_t launch(const char* by, const Kernel* kernel, dim3 grid, dim3 block, void** arguments,
                   size_t shared, cudaStream_t handle) {
  Call call(by, Call::kContext);
  if (call.refused()) return call.end();
  State& s = state();
  if (t_thread.outsider == 0) {
    const cudaError_t struck = strike_locked("work");
    if (struck != cudaSuccess) return call.end(struck);
  }
  if (kernel == nullptr) return call.end(cudaErrorInvalidDeviceFunction);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535 || block.x == 0 || block.y == 0 || block.z == 0 ||
      uint64_t{block.x} * block.y * block.z > uint64_t{kMostThreads} || shared > (48u << 10)) {
    misuse(by, "%s with an impossible configuration", kernel->name.c_str());
    return call.end(cudaErrorInvalidConfiguration);
  }
  Stream* stream = find_stream_locked(handle, by);
  if (stream == nullptr) return call.end(cudaErrorInvalidResourceHandle);
  if (stream->device != current_device()) {
    misuse(by, "a stream of device %d while device %d is current", stream->device,
           current_device());
    return call.end(cudaErrorInvalidResourceHandle);
  }
  const auto body = s.bodies.find(kernel->name);
  if (body == s.bodies.end()) {
    misuse(by, "no body for the kernel %s", kernel->name.c_str());
    return call.end(cudaErrorInvalidDeviceFunction);
  }
  load_locked(*kernel);
  const KernelBody& run = body->second;
  std::shared_ptr<void> captured(run.capture(arguments), run.release);
  const auto operation = std::make_shared<Operation>();
  operation->what = body->first.c_str();
  const void* pointers[16];
  const size_t count = run.pointers(captured.get(), pointers, 16);
  operation->pointers.assign(pointers, pointers + count);
  for (const void* pointer : operation->pointers) {
    auto memory = is_device_address(pointer) ? device_memory_at_locked(real(pointer), 1) : nullptr;
    if (memory != nullptr) operation->uses.push_back(std::move(memory));
  }
  if (t_thread.outsider == 0) operation->fault = strike_locked("exec:kernel");
  const Index blocks{grid.x, grid.y, grid.z};
  const Index threads{block.x, block.y, block.z};
  operation->run = [captured, run = run.run, blocks, threads] {
    run(captured.get(), blocks, threads);
  };
  if (stream->capture == nullptr) enqueue_locked(*stream, operation);
  return call.end(cudaSuccess);
}

const Kernel* find_kernel(const void* stub) {
  const auto found = kernels().find(stub);
  return found == kernels().end() ? nullptr : found->second;
}

}  // namespace

extern "C" {

CUDA_EMULATED_API void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
CUDA_EMULATED_API void __cudaRegisterFatBinaryEnd(void**) {}
CUDA_EMULATED_API void __cudaUnregisterFatBinary(void**) {}

CUDA_EMULATED_API void __cudaRegisterFunction(void**, const char* stub, char*, const char* name,
                                              int, uint3*, uint3*, dim3*, dim3*, int*) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  kernels()[stub] = new Kernel{name, short_name(status == 0 ? text : name)};
  std::free(text);
}

// The bodies have the host's copy of a __device__ variable.
CUDA_EMULATED_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {
}

CUDA_EMULATED_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                       struct CUstream_st* stream) {
  if (t_thread.launch.set) misuse("cudaLaunchKernel", "configured inside another launch");
  t_thread.launch = {true, grid, block, shared, stream};
  return 0;
}

CUDA_EMULATED_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                         void* stream) {
  if (!t_thread.launch.set) return cudaErrorMissingConfiguration;
  *grid = t_thread.launch.grid;
  *block = t_thread.launch.block;
  *shared = t_thread.launch.shared;
  *static_cast<cudaStream_t*>(stream) = t_thread.launch.stream;
  t_thread.launch.set = false;
  return cudaSuccess;
}

CUDA_EMULATED_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  // Needs neither a device nor a context: modules are loaded lazily.
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<Kernel*>(find_kernel(stub)));
  return *kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

CUDA_EMULATED_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                                 void** arguments, size_t shared,
                                                 cudaStream_t stream) {
  return launch("cudaLaunchKernel", reinterpret_cast<Kernel*>(kernel), grid, block, arguments,
                shared, stream);
}

CUDA_EMULATED_API cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block,
                                               void** arguments, size_t shared,
                                               cudaStream_t stream) {
  return launch("cudaLaunchKernel", find_kernel(stub), grid, block, arguments, shared, stream);
}

CUDA_EMULATED_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                                    const void* stub) {
  Call call("cudaFuncGetAttributes", Call::kContext);
  if (call.refused()) return call.end();
  const Kernel* kernel = find_kernel(stub);
  if (kernel == nullptr) return call.end(cudaErrorInvalidDeviceFunction);
  load_locked(*kernel);
  *attributes = {};
  attributes->maxThreadsPerBlock = kMostThreads;
  return call.end(cudaSuccess);
}

}  // extern "C"
