"""What CUDA's compiler makes of the kernels."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tempfile
from pathlib import Path

from machine_code import Instruction, functions

ROOT = Path(__file__).resolve().parents[3]
ARCHITECTURE = "sm_90"  # of the H100 and the H200
SOURCES = ("normalize", "augment")
TYPES = ("float32", "float16", "bfloat16")
_LAYOUTS = ("nchw", "nhwc")
_ENTRY = re.compile(
    r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)


@dataclasses.dataclass
class CompiledKernel:
    name: str
    element_bytes: int
    code: list[Instruction]
    registers: int
    local_bytes: int
    spilled_bytes: int


def compile_kernels(tools: Path) -> list[CompiledKernel]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for source in SOURCES:
            path = ROOT / "csrc" / "backend" / "cuda" / f"{source}.cu"
            target = Path(folder) / f"{source}.cubin"
            # As CMakeLists.txt has them for a release.
            flags = ["-std=c++17", "-O3", "-DNDEBUG", f"-I{ROOT / 'csrc'}", f"-arch={ARCHITECTURE}"]
            command = [tools / "bin" / "nvcc", *flags, "-cubin", "-Xptxas=-v", path, "-o", target]
            resources = _ENTRY.findall(_output(command))
            code = dict(functions(_output([tools / "bin" / "cuobjdump", "-sass", target])))
            if not resources or {each[0] for each in resources} != set(code):
                raise RuntimeError(f"ptxas and cuobjdump tell different kernels of {path}")
            for mangled, stack, stored, loaded, registers in resources:
                name, element_bytes = name_of(mangled)
                spilled = int(stored) + int(loaded)
                found.append(
                    CompiledKernel(
                        name, element_bytes, code[mangled], int(registers), int(stack), spilled
                    )
                )
    return sorted(found, key=lambda each: each.name)


def name_of(mangled: str) -> tuple[str, int]:
    """A kernel's name for people, and the bytes of an element it writes."""
    match = re.search(r"_kernelINS_\d+([A-Za-z]+)KernelI(\w*?)EEv", mangled)
    if match is None:
        raise RuntimeError(f"{mangled} is no kernel of this project")
    kind, *rest = map(int, re.findall(r"L(?:[a-z]|NS\w*?E|S\w*?_)(\d+)E", match[2] + "E"))
    words = [match[1].lower(), TYPES[kind]]
    channels, into, out = rest
    words += [f"C={channels}", f"{_LAYOUTS[into]}->{_LAYOUTS[out]}"]
    return " ".join(words), 4 if kind == 0 else 2


def version(tools: Path) -> str:
    text = _output([tools / "bin" / "nvcc", "--version"])
    (found,) = re.findall(r"V(\d+\.\d+\.\d+)", text)
    return found


def _output(command: list) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout
