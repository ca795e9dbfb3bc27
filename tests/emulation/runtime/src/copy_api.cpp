#include "state.h"

#include <cstring>

using namespace cuda_emulated;

namespace {

constexpr size_t kStagedCopy = size_t{64} << 10;  // the driver's own buffer takes that much

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  Call call("cudaMemcpyAsync", Call::kContext);
  if (call.refused()) return call.end();
  State& s = state();
  if (t_thread.outsider == 0) {
    const cudaError_t struck = strike_locked("work");
    if (struck != cudaSuccess) return call.end(struck);
  }
  const Target to = target(handle, call);
  if (to.status != cudaSuccess) return call.end(to.status);
  if (bytes == 0) return call.end(cudaSuccess);
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost &&
      kind != cudaMemcpyDeviceToDevice) {
    return call.end(cudaErrorInvalidMemcpyDirection);
  }
  const auto operation = std::make_shared<Operation>();
  operation->what = "a copy";
  operation->from_host = kind == cudaMemcpyHostToDevice;
  bool pageable = false;
  for (const bool destination : {true, false}) {
    const void* address = destination ? dst : src;
    const bool device =
        kind == cudaMemcpyDeviceToDevice || destination == (kind == cudaMemcpyHostToDevice);
    if (is_device_address(address) != device) return call.end(cudaErrorInvalidValue);
    if (device) {
      auto memory = device_memory_at_locked(real(address), bytes);
      if (memory == nullptr) {
        if (address != nullptr) {
          misuse(call.name(), "%zu bytes at %p, outside any device allocation", bytes, address);
        }
        return call.end(cudaErrorInvalidValue);
      }
      operation->uses.push_back(std::move(memory));
      continue;
    }
    switch (registered_at_locked(real(address), bytes, &operation->uses)) {
      case Pinned::kWhole:
        break;
      case Pinned::kPartly:
        misuse(call.name(), "%zu host bytes that are registered only in part", bytes);
        return call.end(cudaErrorInvalidValue);
      case Pinned::kNo:
        pageable = true;
        break;
    }
  }
  if (t_thread.outsider == 0) operation->fault = strike_locked("exec:copy");
  void* const to_real = real_address(dst);
  const void* const from_real = real_address(src);
  if (pageable) {
    if (t_thread.outsider == 0) {
      ++s.counts["(any)"]["(pageable copy)"];
      if (to.stream->capture != nullptr) {
        invalidate_locked(*to.stream->capture);
        return call.end(cudaErrorStreamCaptureUnsupported);
      }
    }
    if (kind == cudaMemcpyHostToDevice && bytes <= kStagedCopy) {
      // Taken into a staging buffer at once; the caller may overwrite it.
      auto staged = std::make_shared<std::vector<char>>(bytes);
      quiet_end();
      std::memcpy(staged->data(), from_real, bytes);
      quiet_begin();
      operation->run = [to_real, staged] {
        quiet_begin();
        const char* from = staged->data();
        quiet_end();
        std::memcpy(to_real, from, staged->size());
      };
      submit(*to.stream, operation);
      return call.end(cudaSuccess);
    }
  }
  operation->run = [to_real, from_real, bytes] { std::memcpy(to_real, from_real, bytes); };
  const bool queued = submit(*to.stream, operation);
  return call.end(pageable && queued && s.options.pageable_copies_wait ? call.wait_for(operation)
                                                                       : cudaSuccess);
}

}  // extern "C"
