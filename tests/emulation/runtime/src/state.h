#pragma once

// What the emulated driver knows. Everything is guarded by State::lock unless a comment says
// otherwise; operations are carried out by one thread per stream, without the lock.

#include "cuda_emulated.h"  // first: it makes the API visible

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernel_body.h"
#include "lock.h"

namespace cuda_emulated {

// No address of a process has this bit; the twin's host_memory.h says why.
#if defined(__aarch64__)
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 55;
#else
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 62;
#endif
constexpr size_t kDeviceBytes = size_t{8} << 30;
constexpr int kMaxDevices = 16;

/// A device allocation, or a registered range of host memory.
struct Memory {
  uintptr_t base = 0;  // where the bytes really are
  size_t bytes = 0;
  uintptr_t mapping = 0;  // of a device allocation: whole pages, which `base` lies in
  size_t mapped = 0;
  int device = 0;
  uint64_t pending = 0;  // operations that will touch it
  bool kept_to_the_end = false;
  bool holds(uintptr_t at, size_t count) const {
    return at >= base && count <= bytes && at - base <= bytes - count;
  }
  bool touches(uintptr_t at, size_t count) const { return at < base + bytes && base < at + count; }
};

struct Stream;

struct Operation {
  const char* what = "";
  Stream* stream = nullptr;
  std::vector<std::shared_ptr<Operation>> after;  // beyond its stream's order
  std::function<void()> run;                      // empty: a record or a wait
  std::vector<const void*> pointers;              // of a kernel, looked up when it runs
  std::vector<std::shared_ptr<Memory>> uses;
  cudaError_t fault = cudaSuccess;
  bool host_function = false;
  bool from_host = false;
  bool done = false;
  char issued_point = 0, done_point = 0;  // for happens_before
};
using OperationRef = std::shared_ptr<Operation>;

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  uint64_t thread = 0;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  std::set<Stream*> unjoined;
  bool valid = true;
};

struct Stream {
  int device = 0;
  uint64_t number = 0;
  bool blocking = false;  // waits for the legacy stream, and it for this one
  bool legacy = false;
  bool destroyed = false;
  std::deque<OperationRef> queue;  // the front one may be running
  OperationRef tail;               // the newest, maybe done
  std::shared_ptr<Capture> capture;
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  OperationRef latest;  // null: never recorded
  std::shared_ptr<Capture> captured;
  Stream* captured_on = nullptr;
  bool destroyed = false;
};

struct Device {
  char context = 0;  // its address is the primary context
  bool active = false;
  cudaError_t broken = cudaSuccess;
  Stream* legacy = nullptr;
  size_t used_bytes = 0;
  std::set<const void*> loaded;  // kernels
};

struct Thread {
  uint64_t number = 0;
  int device = 0;    // of the last cudaSetDevice
  int context = -1;  // device whose context is current
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool in_host_function = false;
  int outsider = 0;
  int selecting = -1;  // the device that cudaSetDevice is about to select
  size_t strikes = 0;  // the number of its latest strike; 0: it has made a call since
  uint64_t random = 0;
  Stream* per_thread[kMaxDevices] = {};
  struct {
    bool set = false;
    dim3 grid, block;
    size_t shared = 0;
    cudaStream_t stream = nullptr;
  } launch;
};
extern thread_local Thread t_thread;

struct FaultState {
  Fault fault;
  uint64_t seen = 0;
};

struct State {
  Lock lock;
  Condition changed;
  int pid = 0;  // of the process that initialised the driver, 0: nobody has
  bool options_read = false;
  Options environment;  // what it says, once options_read
  Options options;      // what holds, then with delays
  Device devices[kMaxDevices];
  std::map<uintptr_t, std::shared_ptr<Memory>> device_memory;  // by base
  std::map<uintptr_t, std::shared_ptr<Memory>> registered;
  std::set<Stream*> streams,
      destroyed_streams;  // never freed: an old handle is told from a new one
  std::set<Event*> events, destroyed_events;
  std::set<std::shared_ptr<Capture>> captures;
  std::vector<FaultState> faults;
  uint64_t struck = 0;
  std::vector<Strike> strikes;
  std::map<cudaError_t, const char*> words;  // of the fault that struck last
  std::set<std::string> all_words;           // never erased: CUDA's strings live for ever
  Counts counts;
  std::vector<std::string> notes;
  std::map<std::string, KernelBody> bodies;
  uint64_t streams_made = 0, threads_seen = 0, operations = 0, pending = 0;
  bool host_thread_taken = false;
};
State& state();
/// Whether the driver was initialised in another process than this one.
bool in_forked_child();

/// Tells of it, and ends the process if that is strict.
void misuse(const char* call, const char* format, ...) __attribute__((format(printf, 2, 3)));
void note_locked(std::string text);

/// One call of the API by the program: takes the lock, counts, strikes.
class Call {
 public:
  enum Flags : unsigned {
    kPlain = 0,
    kContext = 1,          // makes a context if the thread has none; fails on a broken one
    kUnsafeInCapture = 2,  // not while a capture goes on, unless the thread is relaxed
    kProbe = 4,            // allowed in a forked child, where it fails
    kDriver = 8,           // not the runtime's: no last error
  };
  Call(const char* name, unsigned flags);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool refused() const { return refused_ != cudaSuccess; }
  cudaError_t end() { return end(refused_); }
  cudaError_t end(cudaError_t status);
  const char* name() const { return name_; }
  /// Sleeps until `operation` is done, or its device broken.
  cudaError_t wait_for(const OperationRef& operation);
  /// The same without a word: for what synchronises implicitly.
  void settle(const OperationRef& operation);

 private:
  cudaError_t admit(unsigned flags);
  const char* const name_;
  const unsigned flags_;
  bool locked_ = false;
  cudaError_t refused_ = cudaSuccess;
};

/// Holds the lock without a call being made: for what a test asks.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

cudaError_t strike_locked(const std::string& name);
bool is_sticky(cudaError_t error);
void break_locked(int device, cudaError_t error, const char* by);
void ensure_context_locked(const char* by);
int current_device();
void set_context_locked(int device);

Stream* make_stream_locked(int device, bool blocking, bool legacy);
/// Null for a handle that is none; misuse is told.
Stream* find_stream_locked(cudaStream_t handle, const char* by);
Event* find_event_locked(cudaEvent_t handle, const char* by);
void enqueue_locked(Stream& stream, const OperationRef& operation);
void destroy_stream_locked(Stream& stream);

std::shared_ptr<Memory> device_memory_at_locked(uintptr_t real, size_t bytes);
bool is_device_address(const void* address);
uintptr_t real(const void* address);
/// How a range of host memory lies to the registered ones.
enum class Pinned { kNo, kWhole, kPartly };
Pinned registered_at_locked(uintptr_t at, size_t bytes,
                            std::vector<std::shared_ptr<Memory>>* found);

void invalidate_locked(Capture& capture);

/// The stream of a handle, or why no work can be put on it.
struct Target {
  Stream* stream = nullptr;
  cudaError_t status = cudaSuccess;
};
Target target(cudaStream_t handle, const Call& call);
/// False if the stream is being captured: the work is kept in a graph, which nobody here replays.
bool submit(Stream& stream, const OperationRef& operation);

void report_at_exit();
void read_options_locked(State& state);
void* work(void* stream);  // the thread of a stream
uint64_t next_random(uint64_t* at);
void sleep_us(uint64_t us);

}  // namespace cuda_emulated
