"""Builds what the tests run: the PTX of both kernel files for every architecture of the wheel, and one
library of nvcc's host code, the fake runtime and the project's CPU code."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import fcntl
import hashlib
import os
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
KERNEL_FILES = ("normalize", "augment")
_CPU_SOURCES = (
    "image/normalize/*.cpp",
    "image/resize/*.cpp",
    "image/ops/kernels/*.cpp",
    "image/jpeg/kernels/*.cpp",
    "image/jpeg/huffman.cpp",
    "image/jpeg/progressive/table.cpp",
    "image/dispatch.cpp",
    "image/x86_features.cpp",
)
_OPTIMISED = ["-std=c++17", "-O3", "-DNDEBUG", f"-I{ROOT / 'csrc'}"]
# As CMakeLists.txt compiles the CPU code: no product and sum is fused but where the source says so.
_FOR_HOST = [*_OPTIMISED, "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]


@dataclasses.dataclass(frozen=True)
class Build:
    library: Path
    ptx: dict[str, list[Path]]  # file of kernels -> a text for each architecture


def missing_tools() -> str:
    """What keeps the tests from running, or nothing."""
    tools = os.environ.get("FASTLOADER_CUDA_TOOLS")
    if not tools:
        return "FASTLOADER_CUDA_TOOLS names no folder with bin/nvcc and bin/cuobjdump"
    for name in ("nvcc", "cuobjdump"):
        if not os.access(Path(tools) / "bin" / name, os.X_OK):
            return f"FASTLOADER_CUDA_TOOLS={tools} has no bin/{name}"
    return ""


def architectures() -> list[str]:
    """Those that the wheel is built for."""
    text = (ROOT / "cmake" / "Cuda.cmake").read_text()
    found = re.findall(r"set\(CMAKE_CUDA_ARCHITECTURES ([^)]*)\)", text)
    if len(found) != 1:
        raise RuntimeError("cmake/Cuda.cmake does not set CMAKE_CUDA_ARCHITECTURES once")
    return sorted({each.partition("-")[0] for each in found[0].split()})


def build(folder: Path) -> Build:
    """Builds in a folder below `folder` that is named after the sources, unless it is there already.
    Of processes that want the same, one builds and the others wait."""
    tools = Path(os.environ["FASTLOADER_CUDA_TOOLS"]).resolve()
    place = folder / f"ptx-{_fingerprint(tools)}"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            _build(tools, place)
            (place / "done").touch()
    ptx = {name: sorted(place.glob(f"{name}.*.ptx")) for name in KERNEL_FILES}
    return Build(place / "device.so", ptx)


def _fingerprint(tools: Path) -> str:
    digest = hashlib.sha256(str(tools).encode())
    files = [*(ROOT / "csrc").rglob("*"), *(ROOT / "tests" / "native").glob("*.h")]
    files += [*(HERE / "native").iterdir(), Path(__file__), ROOT / "cmake" / "Cuda.cmake"]
    for path in sorted(each for each in files if each.is_file()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(tools: Path, place: Path) -> None:
    cpu = [path for pattern in _CPU_SOURCES for path in sorted((ROOT / "csrc").glob(pattern))]
    ours = sorted((HERE / "native").glob("*.cpp"))
    includes = [f"-I{tools / 'include'}", f"-I{ROOT / 'tests' / 'native'}"]
    commands, objects = [], []
    for name in KERNEL_FILES:  # first: they take the longest
        objects.append(place / f"{name}.cu.o")
        commands.append(
            _nvcc(tools, ROOT / "csrc" / "backend" / "cuda" / f"{name}.cu", objects[-1])
        )
    for path in (*ours, *cpu):
        objects.append(place / f"{path.parent.name}_{path.stem}.o")
        launcher = shlex.split(os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", ""))
        more = includes if path in ours else []
        commands.append([*launcher, "g++", *_FOR_HOST, *more, "-c", path, "-o", objects[-1]])
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: _run(command, place), commands))
    # -Bsymbolic: another library of this process may bring the real runtime.
    shared = ["g++", "-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", "-o", place / "device.so"]
    _run([*shared, *objects], place)
    for name in KERNEL_FILES:
        _run([tools / "bin" / "cuobjdump", "-xptx", "all", place / f"{name}.cu.o"], place)


def _nvcc(tools: Path, source: Path, target: Path) -> list:
    # The PTX of each architecture and no machine code: nvcc makes the machine code of a `-real`
    # architecture from this same text.
    targets = []
    for name in architectures():
        targets += ["-gencode", f"arch=compute_{name},code=compute_{name}"]
    host = ["-Xcompiler=-fPIC", "-Xcompiler=-fvisibility=hidden", "-Xcompiler=-ffp-contract=off"]
    at_once = f"--threads={len(os.sched_getaffinity(0))}"  # architectures
    compiler = [tools / "bin" / "nvcc", at_once, *_OPTIMISED, *host, *targets]
    return [*compiler, "-c", "-o", target, source]


def _run(command: list, place: Path) -> None:
    command = [str(each) for each in command]
    done = subprocess.run(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}")
