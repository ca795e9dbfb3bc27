#pragma once

// Counts what the program allocates. For a test's only source file: it replaces the global
// operators.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> allocations{0};

void* counted(size_t bytes, size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
