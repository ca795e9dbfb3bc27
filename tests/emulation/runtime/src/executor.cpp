#include "state.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>

#include <cstdlib>

namespace cuda_emulated {

uint64_t next_random(uint64_t* at) {  // splitmix64
  uint64_t z = (*at += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void sleep_us(uint64_t us) {
  if (us == 0) return;
  const timespec time{static_cast<time_t>(us / 1000000), static_cast<long>(us % 1000000 * 1000)};
  nanosleep(&time, nullptr);
}

namespace {

bool ready_locked(const Operation& operation) {
  for (const OperationRef& before : operation.after) {
    if (!before->done) return false;
  }
  return true;
}

// A kernel that does what it may not do ends with the context, not with the process. Without a
// sanitizer, whose own report is the better one.
bool sanitized() { return __asan_poison_memory_region != nullptr || __tsan_acquire != nullptr; }

thread_local sigjmp_buf t_kernel_left;
thread_local bool t_in_kernel = false;
thread_local const char* t_kernel = "";
enum Left { kStays, kBadAddress, kMisaligned };  // what siglongjmp gives sigsetjmp to return

void on_bad_access(int signal, siginfo_t*, void*) {
  // The compiler checks the alignment of typed accesses in a kernel's body, and traps.
  if (t_in_kernel) siglongjmp(t_kernel_left, signal == SIGILL ? kMisaligned : kBadAddress);
  ::signal(signal, SIG_DFL);  // comes again at once, and is the program's own
}

void run_kernel(const Operation& operation) {
  t_kernel = operation.what;
  if (sanitized()) {
    operation.run();
    return;
  }
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    bool all = true;
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL}) {
      all = sigaction(signal, &action, nullptr) == 0 && all;
    }
    return all;
  }();
  static_cast<void>(installed);
  t_in_kernel = true;
  const int left = sigsetjmp(t_kernel_left, 1);
  if (left == kStays) {
    operation.run();
    t_in_kernel = false;
    return;
  }
  t_in_kernel = false;
  misuse(operation.what, left == kMisaligned ? "an access that is not aligned"
                                             : "touched memory that it may not touch");
  State& s = state();
  s.lock.lock();
  break_locked(operation.stream->device,
               left == kMisaligned ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress,
               operation.what);
  s.lock.unlock();
}

/// Of a kernel's arguments: checked when it runs, since a block may have been freed meanwhile.
void check_pointers(const Operation& operation) {
  const int device = operation.stream->device;
  for (const void* pointer : operation.pointers) {
    if (pointer == nullptr || state().devices[device].broken != cudaSuccess) continue;
    const auto memory = device_memory_at_locked(real(pointer), 1);
    if (is_device_address(pointer) && memory != nullptr && memory->device == device) continue;
    misuse(operation.what, "ran on device %d with %p, which is not memory of that device", device,
           pointer);
    break_locked(device, cudaErrorIllegalAddress, operation.what);
  }
}

/// The front operation, which nothing holds back any more. Called and returns with the lock.
void carry_out(State& s, const OperationRef& operation, uint64_t* random) {
  Device& device = s.devices[operation->stream->device];
  if (operation->host_function && s.options.host_functions_share_a_thread) {
    while (s.host_thread_taken) s.changed.wait(s.lock);
    s.host_thread_taken = true;
  }
  uint64_t delay = operation->from_host ? s.options.h2d_delay_us : 0;
  if (*s.options.delay_seed != 0) {
    delay += next_random(random) % (*s.options.max_delay_us + 1);
  }
  if (delay > 0) {
    s.lock.unlock();
    sleep_us(delay);
    s.lock.lock();
  }
  if (device.broken == cudaSuccess && operation->fault != cudaSuccess) {
    break_locked(operation->stream->device, operation->fault, operation->what);
  }
  check_pointers(*operation);
  for (const OperationRef& before : operation->after) happens_after(&before->done_point);
  happens_after(&operation->issued_point);
  // After an error nothing is executed, host functions included.
  if (operation->run && device.broken == cudaSuccess) {
    s.lock.unlock();
    t_thread.in_host_function = operation->host_function;
    quiet_end();
    if (operation->pointers.empty()) {
      operation->run();
    } else {
      run_kernel(*operation);
    }
    quiet_begin();
    t_thread.in_host_function = false;
    s.lock.lock();
  }
  operation->run = nullptr;
  happens_before(&operation->done_point);
  if (operation->host_function && s.options.host_functions_share_a_thread) {
    s.host_thread_taken = false;
  }
  operation->done = true;
  operation->after.clear();
  for (const auto& memory : operation->uses) --memory->pending;
  --s.pending;
}

}  // namespace

void misaligned_access(const void* address, size_t bytes) {
  if (t_in_kernel) siglongjmp(t_kernel_left, kMisaligned);
  misuse(t_kernel, "an access at %p that is not aligned to %zu bytes", address, bytes);
  std::abort();
}

void* work(void* argument) {
  quiet_begin();
  pthread_setname_np(pthread_self(), "cuda_emulated");
  Stream& stream = *static_cast<Stream*>(argument);
  State& s = state();
  s.lock.lock();
  uint64_t random = *s.options.delay_seed * 1000003 + stream.number;
  for (;;) {
    if (stream.queue.empty()) {
      if (stream.destroyed) break;
      s.changed.wait(s.lock);
      continue;
    }
    const OperationRef operation = stream.queue.front();
    if (!ready_locked(*operation)) {
      s.changed.wait(s.lock);
      continue;
    }
    carry_out(s, operation, &random);
    stream.queue.pop_front();
    s.changed.notify_all();
  }
  s.lock.unlock();
  quiet_end();
  return nullptr;
}

}  // namespace cuda_emulated
