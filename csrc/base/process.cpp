#include "base/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace fastloader {
namespace {

// Partner: the child handler of pthread_atfork, which runs while the child has one thread; readers
// only compare for equality. Relaxed suffices: no other memory is published through it.
std::atomic<uint64_t> g_fork_generation{0};

// Partner: set_process_exiting. Relaxed suffices: it only turns destructors into leaks.
std::atomic<bool> g_exiting{false};

struct Hooks {
  Hooks() {
    pthread_atfork(nullptr, nullptr,
                   [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
    std::atexit([] { set_process_exiting(); });
  }
};

// Registered when the library loads, so that even a fork before the first object is counted.
const Hooks g_hooks;

}  // namespace

uint64_t fork_generation() noexcept { return g_fork_generation.load(std::memory_order_relaxed); }

bool process_exiting() noexcept { return g_exiting.load(std::memory_order_relaxed); }

void set_process_exiting() noexcept { g_exiting.store(true, std::memory_order_relaxed); }

}  // namespace fastloader
