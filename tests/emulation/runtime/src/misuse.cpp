// What no CUDA program may do, and the last words of a process.

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

namespace cuda_emulated {
namespace {

// In memory shared with forked children, so that the parent hears of theirs.
struct Misuses {
  static constexpr uint32_t kMost = 512;
  std::atomic<uint32_t> count;
  std::atomic<int> tolerated;
  std::atomic<bool> left_on_purpose;
  char text[kMost][248];
};

Misuses* make_misuses() {
  void* data =
      mmap(nullptr, sizeof(Misuses), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) std::abort();
  return static_cast<Misuses*>(data);
}

// Changed only by a process that has a single thread.
Misuses*& place_of_misuses() {
  static Misuses* all = make_misuses();
  return all;
}

Misuses& all_misuses() { return *place_of_misuses(); }

bool strict() {
  const char* text = std::getenv("CUDA_EMULATED_STRICT");
  return text != nullptr && std::strcmp(text, "0") != 0;
}

bool leaks_fail() {
  const char* text = std::getenv("CUDA_EMULATED_LEAKS");
  return !all_misuses().left_on_purpose && (text == nullptr || std::strcmp(text, "report") != 0);
}

size_t blocks_kept_to_the_end() {
  const Inside inside;
  const auto& all = state().device_memory;
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [](const auto& each) { return each.second->kept_to_the_end; }));
}

[[noreturn]] void end_process() {
  std::fflush(nullptr);
  // Not _exit: a sanitizer would have its last word, and another exit status.
  for (;;) syscall(SYS_exit_group, kMisuseExit);
}

}  // namespace

void report_at_exit() {
  if (in_forked_child()) return;
  const uint32_t count = all_misuses().count;
  Live left = live();
  left.device_blocks -= blocks_kept_to_the_end();
  const bool leaked = !(left == Live{});
  const bool report = std::getenv("CUDA_EMULATED_REPORT") != nullptr;
  if (report || (leaked && strict())) {
    std::fprintf(stderr,
                 "cuda_emulated: %u misuses; left at exit: %zu streams, %zu events, %zu device "
                 "blocks, %zu registrations, %zu operations\n",
                 count, left.streams, left.events, left.device_blocks, left.registrations,
                 left.pending_operations);
  }
  if (report) {
    for (const std::string& text : notes()) {
      std::fprintf(stderr, "cuda_emulated note: %s\n", text.c_str());
    }
    for (const auto& [thread, of] : counts()) {
      for (const auto& [function, calls] : of) {
        std::fprintf(stderr, "cuda_emulated calls: %-16s %-40s %llu\n", thread.c_str(),
                     function.c_str(), static_cast<unsigned long long>(calls));
      }
    }
  }
  if (strict() && (count > 0 || (leaked && leaks_fail()))) {
    std::fprintf(stderr, "cuda_emulated: strict, exit status %d\n", kMisuseExit);
    end_process();
  }
}

void misuse(const char* call, const char* format, ...) {
  Misuses& all = all_misuses();
  char text[sizeof all.text[0]];
  const int named = std::snprintf(text, sizeof text, "%s: ", call);
  const size_t used = std::min(static_cast<size_t>(std::max(named, 0)), sizeof text - 1);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  char name[16] = "?";
  pthread_getname_np(pthread_self(), name, sizeof name);
  std::fprintf(stderr, "cuda_emulated MISUSE [%s] %s\n", name, text);
  const uint32_t number = all.count++;
  if (number < Misuses::kMost) std::memcpy(all.text[number], text, sizeof text);
  if (strict() && all.tolerated == 0) end_process();
}

std::vector<std::string> misuses() {
  std::vector<std::string> all;
  for (uint32_t i = 0; i < all_misuses().count && i < Misuses::kMost; ++i) {
    all.emplace_back(all_misuses().text[i]);
  }
  return all;
}

void clear_misuses() { all_misuses().count = 0; }

void keep_misuses_apart() { place_of_misuses() = make_misuses(); }

Tolerance::Tolerance() { ++all_misuses().tolerated; }
Tolerance::~Tolerance() { --all_misuses().tolerated; }

void leave_on_purpose() { all_misuses().left_on_purpose = true; }

void keep_to_the_end(const void* device) {
  const Inside inside;
  const auto memory = device_memory_at_locked(real(device), 1);
  if (memory != nullptr) memory->kept_to_the_end = true;
}

}  // namespace cuda_emulated
