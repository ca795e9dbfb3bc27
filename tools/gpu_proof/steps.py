"""The steps, in their order."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Callable

from carried_headers import jpeg_options, python_options
from machine import ROOT, architectures, find, said_by
from step import Commands, Options, Step, StepFailed

BUILD = ROOT / "build" / "gpu-proof"
PART_SECONDS = 590
BUILD_SECONDS = 120  # of them; what it takes with some cores

# Those with a CUDA half, and those about what the kernels and the pipeline share with the twin.
# First the kernels, last what holds streams at gates, where a tool that serialises might hang.
CUDA_TESTS = ["backend_memory_test", "prefetcher_backend_test", "backend_conformance_test"]
HOST_TESTS = [
    *["normalize_test", "augment_test", "device_times_test", "ring_test", "ring_end_test"],
    *["ring_growth_test", "prefetcher_test", "prefetcher_stream_test"],
    *["prefetcher_cancel_test", "prefetcher_failure_test"],
]
# Tests of the Python layer that say what is delivered, not where: run once more, to the GPU.
REUSED = [
    "batch/test_augmentation.py",
    "batch/test_structures.py",
    "compat/test_compat_apex.py",
    "delivery/test_prefetcher.py",
    "order/test_order.py",
    "parity/test_parity_arguments.py",
    "parity/test_parity_datasets.py",
    "parity/test_parity_samplers.py",
    "sources/arrays/test_arrays.py",
    "sources/images/test_image_crops.py",
    "sources/images/test_image_order.py",
    "sources/images/test_image_pixels.py",
]


def build(options: Options) -> Commands:
    """With CMake alone, not through pip: nothing is installed on a borrowed machine, whatever its
    setuptools is. One tree makes the module, which goes into the checkout, and the native tests."""
    cmake, ninja, nvcc = find("cmake"), find("ninja"), find("nvcc")
    for name, path in (("CMake", cmake), ("Ninja", ninja), ("nvcc", nvcc)):
        if path is None:
            raise StepFailed(f"{name} was not found")
    assert cmake is not None and ninja is not None and nvcc is not None
    pybind11 = said_by(sys.executable, "-c", "import pybind11; print(pybind11.get_cmake_dir())")
    if not pybind11:
        raise StepFailed(f"{sys.executable} has no pybind11")
    configure = [
        *[cmake, "-S", str(ROOT), "-B", str(BUILD), "-GNinja", "-DCMAKE_BUILD_TYPE=Release"],
        *["-DFASTLOADER_CUDA=on", "-DFASTLOADER_PYTHON=ON", "-DFASTLOADER_TESTS=ON"],
        *[f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_CUDA_COMPILER={nvcc}"],
        *[f"-DCMAKE_CUDA_ARCHITECTURES={architectures()}", "-DCMAKE_CUDA_FLAGS=-lineinfo"],
        *[f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"],
        *python_options(options.carry),
        *jpeg_options(options.carry),
    ]
    if not options.dry:
        # CMake's cache would keep what an earlier run was told of Python, libjpeg and the GPU.
        record = BUILD / "configured-with.json"
        if not record.exists() or json.loads(record.read_text()) != configure:
            shutil.rmtree(BUILD, ignore_errors=True)
            BUILD.mkdir(parents=True)
            record.write_text(json.dumps(configure))
    yield configure
    jobs = str(len(os.sched_getaffinity(0)))
    yield [
        *[cmake, "--build", str(BUILD), "--parallel", jobs],
        *["--target", "_native", *CUDA_TESTS, *HOST_TESTS],
    ]
    yield [cmake, "--install", str(BUILD), "--prefix", str(ROOT), "--strip"]
    yield [sys.executable, "-c", IMPORTS]


IMPORTS = """
import sys
import fastloader, fastloader._native as native
print(native.__file__)
cuda = native.cuda_info()
print("CUDA", cuda["runtime_version"], "for", cuda["architectures"])
if not cuda["compiled_in"]: sys.exit("the module was built without CUDA")
"""

DEVICE = """
import sys
import torch
if not torch.cuda.is_available(): sys.exit("no CUDA device: torch finds none")
torch.ones(1, device="cuda").item()
print(torch.cuda.get_device_name())
"""


@functools.cache
def has_device() -> bool:
    # Asked beforehand: the sanitizer itself would only say that the program ended too soon.
    said = said_by(sys.executable, "-c", "import torch; print(torch.cuda.is_available())")
    return said == "True"


def device(options: Options) -> Commands:
    yield [sys.executable, "-c", DEVICE]


def native_test(name: str) -> str:
    return str(BUILD / "tests" / "native" / name)


def native(options: Options) -> Commands:
    for name in [*CUDA_TESTS, *HOST_TESTS]:
        yield [native_test(name)]


def pytest(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--all", "-q", "-p", "no:cacheprovider", *arguments]
    # Many tests wait: for the device, for workers, for the end of a soak.
    if said_by(sys.executable, "-c", "import xdist; print(xdist)"):
        command += ["-n", str(max(1, min(6, len(os.sched_getaffinity(0)) // 2)))]
    return command


def gpu_tests(options: Options) -> Commands:
    yield pytest("tests/gpu", "--durations=10")


def reused(options: Options) -> Commands:
    yield pytest(*(f"tests/python/{name}" for name in REUSED), "-k", "twin or streams")


def sanitizer(tool: str) -> Callable[[Options], Commands]:
    def commands(options: Options) -> Commands:
        if not options.dry and not has_device():
            raise StepFailed("no CUDA device: torch finds none")
        program = find("compute-sanitizer", "/usr/local/cuda/compute-sanitizer")
        if program is None and not options.dry:
            raise StepFailed("compute-sanitizer was not found on PATH or in CUDA's folders")
        for name in CUDA_TESTS:
            yield [
                *[program or "compute-sanitizer", "--tool", tool, "--error-exitcode", "9"],
                # Calls that must fail are part of the tests, and so are forked children.
                *["--report-api-errors", "no", "--target-processes", "application-only"],
                *[native_test(name), "cuda_"],
            ]

    return commands


def benchmarks(options: Options) -> Commands:
    program = ROOT / "benchmarks" / "gpu" / "run.py"
    if not program.exists() and not options.dry:
        raise StepFailed(f"{program.relative_to(ROOT)} does not exist in this checkout")
    yield [
        *[sys.executable, str(program), "--out", str(options.out)],
        *(["--data", str(options.data)] if options.data else []),
        *(["--quick"] if options.quick else []),
    ]


REQUIRED = {"FASTLOADER_REQUIRE_CUDA": "1"}
STEPS = [
    Step("build", 1, 240, "the module and the native tests, for the GPUs here", build),
    Step("device", 1, 40, "torch can use a GPU", device),
    Step("native", 1, 80, "backend conformance and the pipeline on CUDA", native, REQUIRED),
    Step(
        "tests",
        1,
        340,
        "tests/gpu, with a soak of 30 s each; skips are failures",
        gpu_tests,
        {**REQUIRED, "FASTLOADER_SOAK_SECONDS": "30"},
    ),
    Step("memcheck", 2, 150, "compute-sanitizer: addresses", sanitizer("memcheck"), REQUIRED),
    Step("racecheck", 2, 60, "compute-sanitizer: shared memory", sanitizer("racecheck"), REQUIRED),
    Step("synccheck", 2, 60, "compute-sanitizer: barriers", sanitizer("synccheck"), REQUIRED),
    Step(
        "parity",
        2,
        190,
        "tests of the Python layer, delivered to the GPU",
        reused,
        {"FASTLOADER_TEST_DEVICE": "cuda"},
    ),
    Step("bench", 3, 470, "speed against ceilings and peers", benchmarks),
]
NAMES = [step.name for step in STEPS]


def choose(part: int | None, only: str | None) -> list[Step]:
    """In their order. What needs the build gets it first: it takes a second where nothing has changed,
    and a part may find a fresh machine."""
    names = set(only.split(",")) if only else {step.name for step in STEPS}
    unknown = names - set(NAMES)
    if unknown:
        raise SystemExit(f"gpu_proof: no step {', '.join(sorted(unknown))}: {', '.join(NAMES)}")
    if part is not None:
        names &= {step.name for step in STEPS if step.part == part}
    if names != {"device"}:
        names.add("build")
    return [step for step in STEPS if step.name in names]
