"""Everything that touches CUDA, built, tested and measured on the machine this runs on.

    python tools/gpu_proof pack                  here: headers that the other machine may lack
    python tools/gpu_proof run [--out DIR] [--part 1|2|3 | --only STEP,...]      there
    python tools/gpu_proof run --list

Needs a GPU, nvcc, CMake, Ninja, pybind11, pytest and torch, and no internet. Run it with the Python that
has torch. `pack` puts libjpeg-turbo's headers and library, and the headers of the Python that runs
it, into .gpu-carry, which travels with the checkout; `run` takes from there what the system lacks.

Each step has a time limit and writes into one log; a step that fails stops nobody. DIR then holds
`summary.json` (every step's exit status, seconds and last words), `steps.log` and what the benchmarks
leave. Exits with 1 if anything failed. The three parts take less than ten minutes each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "gpu-proof"
CARRIED = ROOT / ".gpu-carry"
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
    *["test_structures.py", "test_prefetcher.py", "test_order.py", "test_parity_datasets.py"],
    *["test_parity_samplers.py", "test_parity_arguments.py", "test_compat_apex.py"],
    *["test_image_pixels.py", "test_image_order.py", "test_augmentation.py", "test_arrays.py"],
]

Commands = Iterator[list[str]]


class StepFailed(Exception):
    """Its text is the step's last word."""


@dataclass
class Step:
    name: str
    part: int
    limit: int  # seconds
    about: str
    commands: Callable[[Options], Commands]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Options:
    out: Path
    carry: Path | None
    data: Path | None
    quick: bool
    dry: bool = False


# --- what is on this machine --------------------------------------------------------------------


def find(program: str, *folders: str) -> str | None:
    """On PATH, beside this Python, in CUDA's own folders."""
    beside = [os.path.dirname(sys.executable), "/usr/local/cuda/bin", *folders]
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *beside]))


def said_by(*command: str) -> str:
    """The output of a short command, empty if it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def query(fields: str) -> list[list[str]]:
    """One list of values for each GPU; empty without a driver."""
    text = said_by("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    return [[each.strip() for each in line.split(",")] for line in text.splitlines() if line]


def architectures() -> str:
    """Of the GPUs here, as CMake writes them; without one, those of an H100, so that it compiles."""
    found = sorted({row[0].replace(".", "") for row in query("compute_cap")})
    return ";".join(each for each in found if each.isdigit()) or "90"


TORCH_FACTS = """
import json, torch
from importlib import metadata
def of(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
facts = {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "devices": [], "packages": {
    name: of(name) for name in ("numpy", "pillow", "timm", "torchvision", "pytest", "pybind11")}}
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        facts["devices"].append({"name": p.name, "capability": f"{p.major}.{p.minor}",
            "memory": p.total_memory, "multiprocessors": p.multi_processor_count})
print(json.dumps(facts))
"""


def machine() -> dict[str, Any]:
    nvcc = find("nvcc")
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": len(os.sched_getaffinity(0)),
        "driver": next((row[0] for row in query("driver_version")), None),
        "nvcc": (said_by(nvcc, "--version").splitlines() or [None])[-1] if nvcc else None,
        "revision": said_by("git", "-C", str(ROOT), "rev-parse", "HEAD") or None,
    }
    torch = said_by(sys.executable, "-c", TORCH_FACTS)
    return {**facts, **(json.loads(torch) if torch else {"torch": None, "devices": []})}


# --- headers that travel ------------------------------------------------------------------------

HEADERS = ["jpeglib.h", "jmorecfg.h", "jerror.h", "jconfig.h"]
LIBRARY = "libjpeg.so.62"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def system_jpeg() -> tuple[list[Path], Path] | None:
    """(headers, library) that a compiler finds by itself."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    source = "#include <stdio.h>\n#include <jpeglib.h>\nint main() { return 0; }\n"
    done = subprocess.run(
        [compiler, "-x", "c++", "-H", "-fsyntax-only", "-"],
        input=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    library = said_by(compiler, "-print-file-name=libjpeg.so")
    if done.returncode != 0 or not Path(library).is_absolute():
        return None
    read = [Path(line.split()[-1]) for line in done.stderr.splitlines() if line.startswith(".")]
    folder = next(path.parent for path in read if path.name == "jpeglib.h")
    # Read by nobody here, but part of the interface; the others are known by now.
    read.append(folder / "jerror.h")
    headers = {path.name: path for path in read if path.name in HEADERS and path.exists()}
    return [headers[name] for name in HEADERS if name in headers], Path(library).resolve()


def jpeg_options(carry: Path | None) -> list[str]:
    """What CMake must be told of libjpeg-turbo: nothing where the system has it. A folder given by name
    is taken in any case."""
    if carry is None and system_jpeg() is not None:
        return []
    folder = (carry or CARRIED) / "jpeg"
    headers, library = folder / "include", folder / "lib" / LIBRARY
    missing = [path for path in (headers / "jpeglib.h", headers / "jconfig.h", library)]
    missing = [path for path in missing if not path.exists()]
    if missing:
        raise StepFailed(
            f"libjpeg-turbo's headers are not on this machine, and {missing[0]} does not exist: run "
            "`python tools/gpu_proof pack` where they are, and let the folder travel along"
        )
    return [
        f"-DJPEG_INCLUDE_DIR={headers}",
        f"-DJPEG_LIBRARY={library}",
        f"-DCMAKE_INSTALL_RPATH={library.parent}",
    ]


def python_options(carry: Path | None) -> list[str]:
    """The same of Python's headers, which the packages of some systems leave out."""
    if Path(sysconfig.get_path("include"), "Python.h").exists():
        return []
    folder = (carry or CARRIED) / PYTHON
    if not (folder / "Python.h").exists():
        raise StepFailed(
            f"Python's headers are not on this machine, and {folder} does not exist: run "
            f"`{PYTHON} tools/gpu_proof pack` where they are, and let the folder travel along"
        )
    return [f"-DPython_INCLUDE_DIR={folder}"]


def pack(carry: Path) -> int:
    found = system_jpeg()
    if found is None:
        print("gpu_proof: libjpeg-turbo's headers are not on this machine either", file=sys.stderr)
        return 1
    headers, library = found
    lacking = set(HEADERS) - {path.name for path in headers}
    if lacking:
        print(f"gpu_proof: no {', '.join(sorted(lacking))} beside jpeglib.h", file=sys.stderr)
        return 1
    if LIBRARY not in library.name:
        print(f"gpu_proof: {library} is not {LIBRARY}", file=sys.stderr)
        return 1
    folder = carry / "jpeg"
    shutil.rmtree(carry, ignore_errors=True)
    (folder / "include").mkdir(parents=True)
    (folder / "lib").mkdir()
    for path in headers:
        shutil.copy(path, folder / "include")
    # Under the name that the loader asks for. No link: those need not survive the journey.
    shutil.copy(library, folder / "lib" / LIBRARY)
    packed = [*HEADERS, LIBRARY]
    python = Path(sysconfig.get_path("include"))
    if (python / "Python.h").exists():
        shutil.copytree(python, carry / PYTHON)
        packed.append(f"the headers of {PYTHON}")
    size = sum(path.stat().st_size for path in carry.rglob("*") if path.is_file())
    print(f"{carry}: {', '.join(packed)}; {size / 1024:.0f} KiB")
    return 0


# --- the steps ----------------------------------------------------------------------------------


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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
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


# --- running them -------------------------------------------------------------------------------


def run_command(command: list[str], environment: dict[str, str], seconds: float, log: Any) -> int:
    """Its exit status; 127 when it cannot be run, 124 when the time was up. None of its processes is
    left."""
    log.write(f"$ {' '.join(shown(command))}\n".encode())
    log.flush()
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:  # where the build has failed
        log.write(f"cannot be run: {error}\n".encode())
        log.flush()
        return 127
    try:
        return process.wait(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return 124
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # also what it may have left running
        except ProcessLookupError:
            pass
        process.wait()


def shown(command: list[str]) -> list[str]:
    """Without the text of the little programs."""
    return [word if "\n" not in word else "..." for word in command]


def run_step(
    step: Step, options: Options, environment: dict[str, str], limit: float, path: Path
) -> dict[str, Any]:
    began = time.monotonic()
    reasons: list[str] = []
    commands = 0
    status = 0
    with path.open("ab") as log:
        log.write(f"\n===== {step.name}: {step.about}\n".encode())
        log.flush()
        start = log.tell()
        try:
            for command in step.commands(options):
                left = limit - (time.monotonic() - began)
                if left <= 0:
                    status = 124
                    reasons.append("the time was up before " + " ".join(command[:3]))
                    break
                begin = log.tell()
                commands += 1
                code = run_command(command, {**environment, **step.environment}, left, log)
                log.seek(0, os.SEEK_END)
                if code != 0:
                    status = status or code
                    what = f"still running after {limit:.0f} s" if code == 124 else f"exit {code}"
                    reasons.append(f"{Path(command[0]).name}: {what}: {last_words(path, begin)}")
                    if step.name == "build":
                        break  # nothing after it can be right
        except StepFailed as failed:
            status, text = 1, str(failed)
            reasons.append(text)
            log.write(f"{text}\n".encode())
        text = last_words(path, start)
    return {
        "name": step.name,
        "status": status,
        "seconds": round(time.monotonic() - began, 1),
        "commands": commands,
        "failures": reasons,
        "last": text,
    }


def last_words(path: Path, start: int) -> str:
    """The last line that says something; of several, one that names what is missing."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not line.startswith("$ ")]
    telling = [line for line in lines if "no CUDA device" in line or "NVIDIA driver" in line]
    return (telling or lines or [""])[-1][:300]


def run(options: Options, chosen: list[Step], deadline: float) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "steps.log"
    log.unlink(missing_ok=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("FASTLOADER_")
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    cuda = find("nvcc")
    if cuda is not None:
        environment["PATH"] = os.pathsep.join(
            [os.path.dirname(sys.executable), os.environ.get("PATH", ""), os.path.dirname(cuda)]
        )
    summary: dict[str, Any] = {"machine": machine(), "steps": []}
    for step in chosen:
        limit = min(step.limit, deadline - time.monotonic())
        if limit <= 5:
            result = {"name": step.name, "status": 124, "seconds": 0.0, "commands": 0}
            result |= {"failures": ["not begun: the time was up"], "last": ""}
        else:
            result = run_step(step, options, environment, limit, log)
        summary["steps"].append(result)
        summary["passed"] = not any(each["status"] for each in summary["steps"])
        (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        word = "ok" if result["status"] == 0 else "FAILED"
        print(f"{word:<7}{step.name:<11}{result['seconds']:>6} s   {result['last']}", flush=True)
        for reason in result["failures"]:
            print(f"       - {reason}", flush=True)
    failed = [each["name"] for each in summary["steps"] if each["status"]]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} steps passed; {options.out}/summary.json")
    return 1 if failed else 0


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="collect headers for a machine without them")
    packing.add_argument("--carry", type=Path, default=CARRIED, metavar="DIR")
    running = commands.add_parser("run", help="do the steps")
    out = Path(os.environ.get("OUT") or ROOT / "build" / "gpu")
    running.add_argument("--out", type=Path, default=out, metavar="DIR")
    running.add_argument(
        "--carry", type=Path, metavar="DIR", help="what `pack` made; its libjpeg-turbo is then used"
    )
    running.add_argument("--data", type=Path, metavar="DIR", help="pictures, for the benchmarks")
    running.add_argument("--quick", action="store_true", help="benchmarks that only show they run")
    running.add_argument("--part", type=int, choices=(1, 2, 3))
    running.add_argument("--only", metavar="STEP,...", help=", ".join(NAMES))
    running.add_argument("--limit", type=float, metavar="SECONDS", help="for all of it together")
    running.add_argument(
        "--patience", type=float, default=1, metavar="N", help="times the limits, on slow machines"
    )
    running.add_argument("--list", action="store_true", help="the steps and their limits")
    running.add_argument("--dry-run", action="store_true", help="the commands, in order")
    arguments = parser.parse_args()
    if arguments.command == "pack":
        return pack(arguments.carry.resolve())

    chosen = choose(arguments.part, arguments.only)
    if arguments.list:
        for step in chosen:
            print(f"{step.name:<11}part {step.part}  {step.limit:>4} s  {step.about}")
        return 0
    options = Options(
        arguments.out.resolve(),
        arguments.carry and arguments.carry.resolve(),
        arguments.data and arguments.data.resolve(),
        arguments.quick,
        arguments.dry_run,
    )
    if arguments.dry_run:
        for step in chosen:
            variables = [f"{name}={value}" for name, value in step.environment.items()]
            try:
                for command in step.commands(options):
                    print(f"{step.name}:", *variables, *shown(command))
            except StepFailed as failed:
                print(f"{step.name}: {failed}")
        return 0
    for step in chosen:
        step.limit = int(step.limit * arguments.patience)
    seconds = PART_SECONDS * (1 if arguments.part else 3) * arguments.patience
    return run(options, chosen, time.monotonic() + (arguments.limit or seconds))


if __name__ == "__main__":
    sys.exit(main())
