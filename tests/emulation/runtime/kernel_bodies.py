#!/usr/bin/env python3
"""Turns a .cu file into C++ that registers its kernels' bodies with the emulator.

    python kernel_bodies.py IN.cu OUT.cpp

The kernels stay as they are, word for word: `blockIdx` and `threadIdx` become thread-local, and
`kernel<decltype(x)><<<grid, block, shared, stream>>>(arguments)` becomes a registration that runs
before main. The functions around the launches are renamed; they are compiled, never called.
"""

import re
import sys
from pathlib import Path

HEAD = """// Made by kernel_bodies.py from {name}: do not edit.
#include <cuda_runtime.h>
#undef __global__
#undef __device__
#undef __launch_bounds__
#define __global__
#define __device__
#define __launch_bounds__(...)
#include "kernel_body.h"
#define threadIdx (::cuda_emulated::t_position.thread)
#define blockIdx (::cuda_emulated::t_position.block)
#define blockDim (::cuda_emulated::t_position.block_size)
#define gridDim (::cuda_emulated::t_position.grid_size)
// As nvcc's header has it: a kernel's address is no const void*. Compiled, never called.
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel*) {{ return cudaSuccess; }}
#define __builtin_assume_aligned ::cuda_emulated::aligned_address
"""
LAUNCH = re.compile(r"(\w+)<decltype\((\w+)\)>\s*<<<.*?>>>\(([^;]*)\);", re.S)
HOST = re.compile(r"^(cudaError_t )((?:launch|load)_\w+)\(", re.M)


def registration(match: re.Match) -> str:
    kernel, argument = match.group(1), match.group(2)
    return (
        f"using Argument = std::remove_cv_t<decltype({argument})>;\n"
        f"    static_cast<void>({argument});\n"
        f"    *const_cast<volatile bool*>("
        f"&cuda_emulated::Registered<&{kernel}<Argument>, Argument, NameOf_{kernel}>::listed) = true;"
    )


def main() -> None:
    source = Path(sys.argv[1])
    text = source.read_text()
    text, launches = LAUNCH.subn(registration, text)
    assert launches, f"no launch of the known form in {source}"
    holder = "\n#include <type_traits>\n"
    for kernel in sorted(set(re.findall(r"NameOf_(\w+)>", text))):
        holder += f'struct NameOf_{kernel} {{ static constexpr const char* text = "{kernel}"; }};\n'
    text = HOST.sub(r"[[maybe_unused]] \1compiled_only_\2(", text)
    includes = text.rindex('#include "', 0, text.index("namespace"))
    at = text.index("\n", includes)
    Path(sys.argv[2]).write_text(HEAD.format(name=source.name) + text[:at] + holder + text[at:])


main()
