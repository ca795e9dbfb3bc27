#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "check.h"
#include "child_process.h"
#include "cuda_emulated.h"

namespace fastloader::testing {

/// Each test begins on whole devices, without faults and misuses.
struct Clean {
  Clean() {
    cuda_emulated::drain();
    cuda_emulated::repair();
    cuda_emulated::clear_faults();
    cuda_emulated::clear_misuses();
    cuda_emulated::set_options({});
    cudaSetDevice(0);
    cudaGetLastError();
  }
  ~Clean() {
    cuda_emulated::drain();
    cuda_emulated::repair();
    cuda_emulated::clear_faults();
    cuda_emulated::clear_misuses();
    cuda_emulated::set_options({});
    cudaGetLastError();
  }
};

/// Holds a stream until it is opened. Declared behind what the stream uses: it opens itself first.
class RawGate {
 public:
  RawGate() = default;
  RawGate(const RawGate&) = delete;
  RawGate& operator=(const RawGate&) = delete;
  ~RawGate() {
    open();
    cuda_emulated::drain();
  }
  void close(cudaStream_t stream) {
    const auto wait = [](void* data) {
      const std::unique_ptr<Held> held(static_cast<Held*>(data));
      State& state = **held;
      std::unique_lock<std::mutex> lock(state.mutex);
      state.changed.wait(lock, [&state] { return state.open; });
    };
    auto held = std::make_unique<Held>(state_);
    EXPECT(cudaLaunchHostFunc(stream, wait, held.get()) == cudaSuccess);
    static_cast<void>(held.release());  // the host function owns it now
  }
  void open() {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;  // guards: open
    std::condition_variable changed;
    bool open = false;
  };
  // The stream shares it: that it is drained is no order of threads.
  using Held = std::shared_ptr<State>;
  const Held state_ = std::make_shared<State>();
};

/// A stream of the device that is current when it is made.
class RawStream {
 public:
  explicit RawStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT(cudaStreamCreateWithFlags(&stream_, flags) == cudaSuccess);
  }
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;
  ~RawStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }
  uintptr_t handle() const { return reinterpret_cast<uintptr_t>(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
};

class RawEvent {
 public:
  RawEvent() {
    EXPECT(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync) ==
           cudaSuccess);
  }
  RawEvent(const RawEvent&) = delete;
  RawEvent& operator=(const RawEvent&) = delete;
  ~RawEvent() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class RawBlock {
 public:
  explicit RawBlock(size_t bytes) { EXPECT(cudaMalloc(&data_, bytes) == cudaSuccess); }
  RawBlock(const RawBlock&) = delete;
  RawBlock& operator=(const RawBlock&) = delete;
  ~RawBlock() { cudaFree(data_); }
  char* data() const { return static_cast<char*>(data_); }
  unsigned char* real() const {
    return static_cast<unsigned char*>(cuda_emulated::real_address(data_));
  }

 private:
  void* data_ = nullptr;
};

struct SelfEnd {
  ChildEnd end;
  std::string said;  ///< on stderr
};

constexpr const char* kChildVariable = "CUDA_EMULATED_TEST_CHILD";

/// This program again, for the test `name` alone, which finds itself the child.
inline SelfEnd run_alone(const char* name,
                         const std::map<std::string, std::string>& environment = {}) {
  std::array<int, 2> ends{};
  EXPECT(pipe(ends.data()) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(kChildSeconds);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv(kChildVariable, name, 1);
    setenv("CUDA_EMULATED_STRICT", "1", 1);
    for (const auto& [variable, text] : environment) setenv(variable.c_str(), text.c_str(), 1);
    execl("/proc/self/exe", "test", name, static_cast<char*>(nullptr));
    _exit(98);
  }
  close(ends[1]);
  SelfEnd self;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
    self.said.append(part.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  self.end = wait_for_child(child);
  return self;
}

/// Whether this process is the child of the test `name`; of another's, nothing else runs.
inline bool is_child_of(const char* name) {
  const char* child = std::getenv(kChildVariable);
  return child != nullptr && std::strcmp(child, name) == 0;
}
inline bool is_child() { return std::getenv(kChildVariable) != nullptr; }

/// That `body` in a strict process ends it, as a misuse of `call`.
inline void expect_misuse(const char* name, const char* call, void (*body)()) {
  if (is_child_of(name)) return body();
  if (is_child()) return;
  const SelfEnd self = run_alone(name);
  if (self.said.find(std::string("] ") + call) == std::string::npos) {
    throw Failure{std::string("no misuse of ") + call + " in: " + self.said};
  }
  EXPECT_EQ(self.end.exit_code, cuda_emulated::kMisuseExit);
}

}  // namespace fastloader::testing

/// MISUSE_TEST(name, "cudaFree") { ... }: the body is run in a process of its own.
#define MISUSE_TEST(name, call)                                                       \
  static void misuse_in_##name();                                                     \
  TEST(name) { ::fastloader::testing::expect_misuse(#name, call, misuse_in_##name); } \
  static void misuse_in_##name()
