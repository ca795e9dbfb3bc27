#pragma once

// The bodies of kernels, compiled for the CPU from the very .cu files (see kernel_bodies.py), and
// how the emulator finds them: by the name with which nvcc's object registers the kernel.

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "cuda_emulated.h"

namespace cuda_emulated {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct KernelBody {
  std::string name;  ///< "kernel<Argument>"
  void* (*capture)(void** arguments);
  void (*run)(void* captured, Index grid, Index block);
  void (*release)(void* captured);
  size_t (*pointers)(void* captured, const void** out, size_t room);
};

/// Ends the kernel that runs on this thread, and its context.
[[noreturn]] CUDA_EMULATED_API void misaligned_access(const void* address, size_t bytes);

/// In the place of __builtin_assume_aligned: a GPU traps where an x86 does not.
template <class T>
T* aligned_address(T* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) misaligned_access(address, bytes);
  return address;
}

CUDA_EMULATED_API void add_kernel_body(const KernelBody& body);

/// Of the emulated GPU thread that runs on this CPU thread.
struct Position {
  Index thread, block, block_size, grid_size;
};
inline thread_local Position t_position;

inline std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

template <class T>
T on_host(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(real_address(value));
  } else {
    return value;
  }
}

template <auto* kKernel>
struct Body;

template <class... Arguments, void (*kKernel)(Arguments...)>
struct Body<kKernel> {
  using Captured = std::tuple<std::remove_cv_t<Arguments>...>;

  template <size_t... kNumbers>
  static Captured copy(void** from, std::index_sequence<kNumbers...>) {
    return Captured{*static_cast<std::remove_cv_t<Arguments>*>(from[kNumbers])...};
  }
  static void* capture(void** from) {
    // malloc: a test that counts operator new counts the program's.
    return new (std::malloc(sizeof(Captured)))
        Captured(copy(from, std::index_sequence_for<Arguments...>{}));
  }
  static void release(void* captured) {
    static_cast<Captured*>(captured)->~Captured();
    std::free(captured);
  }
  static void run(void* captured, Index grid, Index block) {
    Position& at = t_position;
    at.grid_size = grid;
    at.block_size = block;
    std::apply(
        [&](const auto&... arguments) {
          for (at.block.z = 0; at.block.z < grid.z; ++at.block.z)
            for (at.block.y = 0; at.block.y < grid.y; ++at.block.y)
              for (at.block.x = 0; at.block.x < grid.x; ++at.block.x)
                for (at.thread.z = 0; at.thread.z < block.z; ++at.thread.z)
                  for (at.thread.y = 0; at.thread.y < block.y; ++at.thread.y)
                    for (at.thread.x = 0; at.thread.x < block.x; ++at.thread.x)
                      kKernel(on_host(arguments)...);
        },
        *static_cast<Captured*>(captured));
  }
  static size_t pointers(void* captured, const void** out, size_t room) {
    size_t count = 0;
    std::apply(
        [&](const auto&... arguments) {
          const auto look = [&](const auto& argument) {
            if constexpr (std::is_pointer_v<std::decay_t<decltype(argument)>>) {
              if (count < room) out[count++] = argument;
            }
          };
          (look(arguments), ...);
        },
        *static_cast<Captured*>(captured));
    return count;
  }
};

/// `listed` is set before main for every kernel whose launch was compiled. `Name::text` is the
/// kernel's name.
template <auto* kKernel, class Argument, class Name>
struct Registered {
  static bool add() {
    using B = Body<kKernel>;
    add_kernel_body({std::string(Name::text) + "<" + demangled(typeid(Argument).name()) + ">",
                     &B::capture, &B::run, &B::release, &B::pointers});
    return true;
  }
  static bool listed;
};
template <auto* kKernel, class Argument, class Name>
bool Registered<kKernel, Argument, Name>::listed = Registered<kKernel, Argument, Name>::add();

}  // namespace cuda_emulated
