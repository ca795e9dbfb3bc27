#pragma once

// What a test says to the emulated CUDA runtime and asks it. A program is linked with it in place
// of libcudart; README.md tells how, and what the environment's variables do.
//
// Every function here may be called from any thread. None of them is a CUDA call.

// The library hides everything else.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#define CUDA_EMULATED_API __attribute__((visibility("default")))

namespace cuda_emulated {

struct Options {
  int devices = 2;
  /// Not 0: each operation, and now and then a call, sleeps first: 0 to `max_delay_us`. What a test
  /// leaves empty is as the environment says: most tests want other options and not other delays.
  std::optional<uint64_t> delay_seed;
  std::optional<unsigned> max_delay_us;
  /// A copy from the host sleeps that long: a slow bus.
  unsigned h2d_delay_us = 0;
  /// As the driver does: host functions of all streams take turns on one thread.
  bool host_functions_share_a_thread = true;
  /// Whether cudaSetDevice fails, too, on a device whose context is broken.
  bool set_device_fails_on_broken = false;
  /// Copies from the device to memory that is not pinned return when they are done.
  bool pageable_copies_wait = true;
  /// cudaEventQuery's cudaErrorNotReady becomes the thread's last error (as it does up to now).
  bool not_ready_is_last_error = true;
};

/// What the environment says holds until the first call of this one; for the delays, see there.
CUDA_EMULATED_API void set_options(const Options& options);
/// What holds now, the delays always with a value.
CUDA_EMULATED_API Options options();

/// The `nth` call of `function` (from 1) returns `error` and does nothing. "exec:copy" and
/// "exec:kernel" fail while they are executed, which breaks the context as on a real device;
/// "work" counts cudaMemcpyAsync and kernel launches together.
struct Fault {
  std::string function;
  uint64_t nth = 1;
  cudaError_t error = cudaErrorUnknown;
  bool from_then_on = false;
  uint64_t times = 1;  ///< in a row, unless from then on
  /// What cudaGetErrorString says of `error` once it struck; empty: "call N of FUNCTION".
  std::string words;
};
CUDA_EMULATED_API void inject(const Fault& fault);
CUDA_EMULATED_API void clear_faults();
/// How many faults have struck.
CUDA_EMULATED_API uint64_t faults_struck();
/// A call that a fault made fail: the thread that made it, and the call that the thread made next,
/// empty if it made none. What a device guard calls on its way does not count as the next call.
struct Strike {
  std::string function;
  std::string thread;
  std::string next;
};
/// Since the last `clear_faults`, without "exec:" and "work".
CUDA_EMULATED_API std::vector<Strike> strikes();

/// While one lives, the calling thread's calls are another library's (torch's): neither counted nor
/// chosen for faults.
class CUDA_EMULATED_API Outsider {
 public:
  Outsider();
  ~Outsider();
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;
};

/// Calls so far: by name of the thread that made them, and function. "(kernel load)" is the first
/// use of a kernel on a device, "(pageable copy)" a copy from or to memory that is not pinned.
using Counts = std::map<std::string, std::map<std::string, uint64_t>>;
CUDA_EMULATED_API Counts counts();
CUDA_EMULATED_API std::map<std::string, uint64_t> counts_by_function();
/// Functions that block the host, or may synchronise with the device implicitly.
CUDA_EMULATED_API bool synchronises(const std::string& function);
CUDA_EMULATED_API bool allocates(const std::string& function);

/// What no CUDA program may do, each beginning with the call's name; also of forked children. With
/// CUDA_EMULATED_STRICT the first ends the process, exit status kMisuseExit.
CUDA_EMULATED_API std::vector<std::string> misuses();
CUDA_EMULATED_API void clear_misuses();
/// For a forked child with one thread, whose parent has other children: from now on its misuses are
/// its own and none at first.
CUDA_EMULATED_API void keep_misuses_apart();
constexpr int kMisuseExit = 86;

/// While one lives, a misuse is kept for `misuses` and does not end a strict process.
class CUDA_EMULATED_API Tolerance {
 public:
  Tolerance();
  ~Tolerance();
  Tolerance(const Tolerance&) = delete;
  Tolerance& operator=(const Tolerance&) = delete;
};

/// For a test that breaks a device: what is left when a strict process ends is told and does not
/// fail it, as with CUDA_EMULATED_LEAKS=report.
CUDA_EMULATED_API void leave_on_purpose();
/// The block at this address is an allocator's that ends with the process, as torch's does: it is
/// not told at the end.
CUDA_EMULATED_API void keep_to_the_end(const void* device);

/// What costs, but is allowed: copies of pageable memory, contexts made by the way.
CUDA_EMULATED_API std::vector<std::string> notes();

/// What has been made and not been given back.
struct Live {
  size_t streams = 0;
  size_t events = 0;
  size_t device_blocks = 0;
  size_t registrations = 0;
  size_t pending_operations = 0;
  bool operator==(const Live& o) const {
    return streams == o.streams && events == o.events && device_blocks == o.device_blocks &&
           registrations == o.registrations && pending_operations == o.pending_operations;
  }
};
CUDA_EMULATED_API Live live();
/// Of one device. Registrations and operations, which are nobody's here, are left out.
CUDA_EMULATED_API Live live_on(int device);
CUDA_EMULATED_API bool context_exists(int device);
/// The sticky error of a device, cudaSuccess if it is well.
CUDA_EMULATED_API cudaError_t broken(int device);
/// Repairs every device, so that a process may go on: what cudaDeviceReset cannot do.
CUDA_EMULATED_API void repair();

/// Waits for everything on every device.
CUDA_EMULATED_API void drain();

/// Where the bytes of a device address are. A device address itself is one that no process can
/// have, so that host code which touches it dies at once.
CUDA_EMULATED_API void* real_address(const void* device);

}  // namespace cuda_emulated
