"""Runs ``fastloader doctor``: what this installation consists of, what was found, and what to do
about it."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.machine.extension import REBUILD
from fastloader.cli import probes
from fastloader.cli.probes import Report, Section

# ---- What ``fastloader doctor`` advises: a pure function of what its probes found.


_MIB = 1 << 20
_GIB = 1 << 30

SMALL_MEMLOCK = 256 * _MIB  # less than a ring of a few batches of 256 pictures
SMALL_SHM = 1 * _GIB
SMALL_MEMORY = 2 * _GIB
FEW_OPEN_FILES = 1024
OLDEST_TORCH = (2, 4)
PIXELS_OF_PILLOW = (13, 0)
PYTHON_OF_THAT_PILLOW = (3, 11)


def advise(report: Report) -> list[str]:
    """Lists what to do, the most important first; empty when there is nothing to do. A text may have
    several lines."""
    # A probe that failed says nothing about what it probed: its section counts as empty.
    known = {name: {} if "error" in section else section for name, section in report.items()}
    rules = (
        _advise_on_native,
        _advise_on_torch,
        _advise_on_cuda,
        _advise_on_pillow,
        _advise_on_memory,
        _processors,
        _advise_on_environment,
    )
    return [text for rule in rules for text in rule(report, known)]


def _advise_on_native(report: Report, known: Report) -> Iterator[str]:
    if "error" in report["native"]:
        yield f"fastloader's native module fails while it loads: {report['native']['error']}."
    native = known["native"]
    if native.get("wanted") and not native.get("loaded"):
        # Its last line refers to this very command.
        yield "\n".join(
            line for line in native["why_not"].splitlines() if "fastloader doctor" not in line
        )
    if native.get("left_out"):
        yield (
            "This is the pure-Python wheel, which gives the same results, only slower. On Linux "
            f"x86-64 and aarch64, build the native one: {REBUILD}."
        )
    if "error" in report["build"]:
        yield (
            f"The native module loads but does not answer: {report['build']['error']}. If the "
            "message names an environment variable, unset it; otherwise reinstall fastloader."
        )
    at_run_time = known["build"].get("libjpeg_at_run_time")
    if at_run_time and "libjpeg-turbo" not in at_run_time:
        yield (
            f"The JPEG library found at run time is not libjpeg-turbo ({at_run_time}). Something on "
            "LD_LIBRARY_PATH comes first; remove it, or pictures may decode to other pixels."
        )
    whole = known["build"].get("libjpeg_decoded_whole")
    if whole:
        yield (
            f"The JPEG library found at run time does not decode parts of pictures exactly "
            f"({', '.join(whole)}): these are decoded whole, which is slower. Install libjpeg-turbo "
            "2.1.5 or newer, and look for an older one on LD_LIBRARY_PATH and LD_PRELOAD."
        )


def _advise_on_torch(report: Report, known: Report) -> Iterator[str]:
    broken = report["torch"].get("error")
    if broken:
        yield (
            f"torch is installed but cannot be imported ({broken}). Reinstall it; "
            "https://pytorch.org/get-started names the command for this machine."
        )
    torch = known["torch"]
    if torch.get("installed") is False:
        yield "torch is not installed: pip install torch (2.4 or later)."
    version = torch.get("version")
    if version and _major_minor(version) < OLDEST_TORCH:
        yield f"torch {version} is older than fastloader supports: pip install 'torch>=2.4'."
    broken_numpy = report["numpy"].get("error")
    if broken_numpy:
        yield f"numpy is installed but cannot be imported ({broken_numpy}). Reinstall it."
    elif known["numpy"].get("installed") is False:
        yield "numpy is not installed: pip install numpy."


def _advise_on_cuda(report: Report, known: Report) -> Iterator[str]:
    cuda, torch, nvidia = known["cuda"], known["torch"], known["nvidia"]
    torch_uses_cuda = torch.get("accelerator") == "cuda" and not torch.get("hip_build")
    has_gpu = _has_gpu(known)
    if cuda and not cuda["compiled_in"] and has_gpu and not torch.get("hip_build"):
        seen = "torch uses CUDA" if torch_uses_cuda else "this machine has an NVIDIA GPU"
        toolkit = (
            f"nvcc is at {nvidia['nvcc']}"
            if nvidia.get("nvcc")
            else "Install the CUDA toolkit, so that nvcc is on PATH (or set CUDACXX to it)"
        )
        yield (
            f"fastloader was built without CUDA although {seen}: batches take torch's own streams, "
            f"which is slower. {toolkit}; then build it again, in a checkout of its source:\n"
            "FASTLOADER_CUDA=on pip install --force-reinstall --no-deps ."
        )
    if cuda and cuda["compiled_in"] and cuda["problem"] and has_gpu:
        container = " In a container, start it with --gpus all." if _in_container(known) else ""
        install = " Install NVIDIA's driver." if cuda["driver_version"] == 0 else ""
        yield f"CUDA is compiled in but cannot be used: {cuda['problem']}.{install}{container}"
    if not torch.get("installed"):
        return
    if has_gpu and not torch.get("cuda_build") and not torch.get("hip_build"):
        yield (
            f"This machine has an NVIDIA GPU, but torch {torch['version']} is a build without CUDA. "
            "Install the CUDA build: https://pytorch.org/get-started."
        )
    elif has_gpu and torch.get("cuda_build") and torch.get("accelerator") is None:
        yield (
            f"torch is built for CUDA {torch['cuda_build']} but sees no GPU although there is one. "
            f"{_hidden_gpus(known)}"
        )


def _has_gpu(known: Report) -> bool:
    nvidia = known["nvidia"]
    return bool(
        nvidia.get("gpus")
        or nvidia.get("pci_gpus")
        or known["cuda"].get("devices")
        or (known["torch"].get("accelerator") == "cuda" and known["torch"].get("cuda_build"))
    )


def _hidden_gpus(known: Report) -> str:
    visible = known["environment"].get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} may hide it."
    return "Update the NVIDIA driver, or install a torch for an older CUDA."


def _in_container(known: Report) -> bool:
    return bool({"docker", "podman", "kubernetes"} & set(known["container"].get("signs", ())))


def _advise_on_pillow(report: Report, known: Report) -> Iterator[str]:
    broken = report["pillow"].get("error")
    if broken:
        yield (
            f"Pillow is installed but cannot be imported ({broken}): "
            "pip install --force-reinstall pillow."
        )
    pillow = known["pillow"]
    if pillow.get("installed") is False:
        yield (
            "Neither Pillow nor Pillow-SIMD is installed, so Python datasets cannot decode pictures: "
            "pip install pillow, or pip install pillow-simd (faster, compiles on this machine)."
        )
    if len(pillow.get("distributions", ())) > 1:
        yield (
            "Pillow and Pillow-SIMD are both installed and overwrite each other's files: "
            "pip uninstall pillow pillow-simd, then install one of them."
        )
    version = pillow.get("version")
    if pillow.get("which") == "Pillow" and version and _major_minor(version) < PIXELS_OF_PILLOW:
        python = known["python"].get("version")
        newer = python is None or _major_minor(python) >= PYTHON_OF_THAT_PILLOW
        yield (
            f"Pillow {version} resizes some pictures in another order of passes than Pillow 13, and the "
            "native path follows the Pillow that is installed: pixels differ by 1 or so from those of "
            "machines with Pillow 13. "
            + (
                "pip install 'pillow>=13'."
                if newer
                else "It needs Python 3.11; until then keep to one version on all your machines."
            )
        )
    if pillow.get("installed") and not pillow.get("libjpeg_turbo"):
        yield (
            f"{pillow['which']} {pillow['version']} was built without libjpeg-turbo and decodes "
            "JPEG several times slower. Install libjpeg-turbo's headers and build it again, or take "
            "the wheel: pip install --force-reinstall --only-binary :all: pillow."
        )


def _advise_on_memory(report: Report, known: Report) -> Iterator[str]:
    limits = known["limits"]
    docker = _in_container(known)
    memlock = limits.get("memlock")
    if memlock is not None and memlock < SMALL_MEMLOCK and _has_gpu(known):
        how = "docker run --ulimit memlock=-1" if docker else "ulimit -l unlimited"
        yield (
            f"Only {size(memlock)} may be locked in memory (ulimit -l). Most NVIDIA drivers do not "
            "count pinned memory against this; if loader.stats()['ring']['pinned'] is False, raise "
            f"it: {how}."
        )
    shm = limits.get("shm")
    if shm is not None and shm < SMALL_SHM:
        how = (
            "docker run --shm-size=8g (or --ipc=host)"
            if docker
            else "mount -o remount,size=8G /dev/shm"
        )
        yield (
            f"/dev/shm holds only {size(shm)}. FastLoader's workers hand batches over in a ring of "
            "their own, without it. Those of a plain DataLoader use it, and die with a bus error when "
            f"it is full, as do FastLoader's with FASTLOADER_WORKER_RING=0: {how}."
        )
    memory = limits.get("cgroup_memory")
    if memory is not None and memory < SMALL_MEMORY:
        yield (
            f"The container or job may use only {size(memory)} of memory, pinned and shared memory "
            "included. Take few workers and small batches, or raise the limit."
        )
    files = limits.get("open_files")
    if files is not None and files < FEW_OPEN_FILES:
        yield (
            f"Only {files} files may be open at once (ulimit -n). With the workers of a plain "
            "DataLoader, or FASTLOADER_WORKER_RING=0, every tensor under way keeps one open: ulimit -n "
            "65536."
        )


def _processors(report: Report, known: Report) -> Iterator[str]:
    cpu = known["cpu"]
    quota, visible = cpu.get("cgroup_quota"), cpu.get("affinity") or cpu.get("count")
    if quota is None or visible is None or quota + 0.5 >= visible:
        return
    threads = max(1, round(quota))
    if known["environment"].get("OMP_NUM_THREADS") is None:
        yield (
            f"{visible} CPUs are visible but the quota is {quota:.3g}: torch starts a thread for each "
            f"and is throttled. Set OMP_NUM_THREADS={threads} and take num_workers from the quota."
        )


def _advise_on_environment(report: Report, known: Report) -> Iterator[str]:
    environment = known["environment"]
    if environment.get("FASTLOADER_NATIVE") == "0":
        yield "FASTLOADER_NATIVE=0 switches the native module off: unset it for speed."
    if environment.get("FASTLOADER_BACKEND"):
        yield (
            f"FASTLOADER_BACKEND={environment['FASTLOADER_BACKEND']} is for tests and makes loaders "
            "slower: unset it for training."
        )
    build = known["build"]
    available = build.get("isas_available") or [None]
    if environment.get("FASTLOADER_FORCE_ISA") and build.get("isa") != available[0]:
        yield (
            f"FASTLOADER_FORCE_ISA keeps {build.get('isa')} in use where {available[0]} would be "
            "faster: unset it."
        )


def _major_minor(version: str) -> tuple[int, ...]:
    numbers = version.split("+")[0].split(".")[:2]
    return tuple(int(number) if number.isdigit() else 0 for number in numbers)


def size(count: Any) -> str:
    """Writes ``count`` bytes for people."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


# ---- ``fastloader doctor``: what this installation consists of, what was found, what to do
# about it.


def add_command(commands: Any) -> None:
    """Adds the command to ``commands``, which is what argparse's add_subparsers returns; its type has no
    public name."""
    parser = commands.add_parser(
        "doctor",
        help="what is compiled in, what was found on this machine, and what to do about it",
        description="Shows what is compiled in and what was found on this machine, and ends with "
        "the advice that follows. The exit status is 1 when the native module is wanted but cannot "
        "be loaded, else 0.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    report = probes.survey()
    steps = advise(report)
    if arguments.json:
        print(json.dumps({**report, "advice": steps}, indent=2))
    else:
        print(as_text(report, steps))
    return exit_status(report)


def exit_status(report: Report) -> int:
    native = report["native"]
    if "error" in native:
        return 1
    return 1 if native["wanted"] and not native["loaded"] else 0


def as_text(report: Report, steps: list[str]) -> str:
    lines = [f"{label:<15} {text}" for label, text in describe(report)]
    lines.append("")
    if not steps:
        lines.append("All good: nothing to do.")
    else:
        lines.append("Advice")
        lines += [_numbered(number, text) for number, text in enumerate(steps, 1)]
    return "\n".join(lines)


def _numbered(number: int, text: str) -> str:
    start = f"{number}. "
    wrapped = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped += textwrap.wrap(
            line.strip(),
            width=96,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,  # paths and commands stay in one piece
            break_on_hyphens=False,
        )
    return start + ("\n" + " " * len(start)).join(wrapped)


def describe(report: Report) -> list[tuple[str, str]]:
    """Describes each thing examined in one labelled line."""
    return [(label, _described(report[section], line)) for label, section, line in LINES]


def _described(section: Section, line: Callable[[Section], str]) -> str:
    if "error" in section:
        return f"could not be examined: {section['error']}"
    return line(section)


def _fastloader(found: Section) -> str:
    return f"{found['version']}, in {found['location']}"


def _python(found: Section) -> str:
    return f"{found['version']}, {found['executable']}, {found['platform']}"


def _native(found: Section) -> str:
    if found["loaded"]:
        return f"loaded, {found['file']}"
    if found["switched_off"]:
        return "switched off by FASTLOADER_NATIVE=0; pure Python serves"
    if found["left_out"]:
        return "left out of this wheel on purpose; pure Python serves"
    return "CANNOT BE LOADED (see below); pure Python serves"


def _compiler(found: Section) -> str:
    return f"{found['version']}, by GCC or Clang {found['compiler']}" if found else "-"


def _instructions(found: Section) -> str:
    if not found:
        return "-"
    return f"{found['isa']} in use; available: {', '.join(found['isas_available'])}"


def _libjpeg(found: Section) -> str:
    if not found:
        return "-"
    if found["libjpeg_at_run_time"] is None:
        return "not in this build: Pillow decodes the JPEGs that fastloader's own decoder leaves"
    at_run_time = _library(found["libjpeg_at_run_time"])
    return f"{found['libjpeg_turbo_compiled']} compiled against; at run time: {at_run_time}"


def _library(said: str) -> str:
    """Returns what a JPEG library says of itself. libjpeg-turbo does not tell its own version, but that
    of the libjpeg whose interface it has ("6b", of 1998), and the years of its copyright."""
    years = re.search(r"\(C\) (?:\d{4}-)?(\d{4}) The libjpeg-turbo Project", said)
    if years is None:
        return said
    return f"libjpeg-turbo of {years[1]}, with the interface of libjpeg {said.split()[0]}"


def _formats(found: Section) -> str:
    if not found:
        return "-"
    zlib, libwebp = found["zlib"], found["libwebp"]
    png = f"PNG natively, zlib {zlib}" if zlib else "PNG by Pillow"
    webp = f"WebP natively, libwebp {libwebp}" if libwebp else "WebP by Pillow"
    return f"{png}; {webp}"


def _reading(found: Section) -> str:
    if not found:
        return "-"
    by = "io_uring" if found["io_uring"] == "in use" else "threads"
    return f"files are read ahead by {by}; io_uring: {found['io_uring']}"


def _cpu(found: Section) -> str:
    quota = found["cgroup_quota"]
    return (
        f"{found['model']}; {found['affinity'] or found['count']} of {found['count']} usable, "
        f"{'no quota' if quota is None else f'quota {quota:.3g}'}"
    )


def _cuda(found: Section) -> str:
    if not found:
        return "-"
    if not found["compiled_in"]:
        return "not compiled in: batches reach an NVIDIA GPU through torch's own streams"
    driver = found["driver_version"]
    return (
        f"runtime {cuda_version(found['runtime_version'])} compiled in for "
        f"{found['architectures']}; "
        f"driver {f'serves CUDA {cuda_version(driver)}' if driver else 'not found'}"
        f"{'; unusable: ' + found['problem'] if found['problem'] else ''}"
    )


def _cuda_devices(found: Section) -> str:
    devices = found.get("devices", [])
    return _listed(
        f"{device['name']} (compute {'.'.join(map(str, device['capability']))}, "
        f"{size(device['total_memory'])})"
        for device in devices
    )


def _nvidia(found: Section) -> str:
    smi = _listed(f"{gpu['name']} {gpu['memory']}" for gpu in found["gpus"])
    versions = {gpu["driver_version"] for gpu in found["gpus"]}
    kernel = found["kernel_driver"]
    driver = ", ".join(sorted(versions)) or ("kernel module loaded" if kernel else "none")
    return (
        f"driver {driver}; GPUs by nvidia-smi: {smi}; on the PCI bus: {found['pci_gpus']}; "
        f"nvcc: {found['nvcc'] or 'none'}"
    )


def _memory(found: Section) -> str:
    limit = found["cgroup_memory"]
    return (
        f"{size(found['memory'])}; "
        f"{'no cgroup limit' if limit is None else f'cgroup limit {size(limit)}'}"
    )


def _memlock(found: Section) -> str:
    return f"{_bytes_or_unlimited(found['memlock'])} may be locked (ulimit -l)"


def _shm(found: Section) -> str:
    if found["shm"] is None:
        return "not there"
    return f"{size(found['shm'])}, {size(found['shm_free'])} free"


def _open_files(found: Section) -> str:
    files = found["open_files"]
    return f"{'unlimited' if files is None else files} (ulimit -n)"


def _container(found: Section) -> str:
    return _listed(found["signs"])


def _torch(found: Section) -> str:
    if not found["installed"]:
        return "not installed"
    if found["hip_build"]:
        build = f"for ROCm {found['hip_build']}"
    elif found["cuda_build"]:
        build = f"for CUDA {found['cuda_build']}"
    else:
        build = "without CUDA"
    why = found.get("accelerator_error")
    accelerator = f"unknown, {why}" if why else found["accelerator"] or "none"
    return f"{found['version']}, {build}; accelerator: {accelerator}; {found['threads']} threads"


def _pillow(found: Section) -> str:
    if not found["installed"]:
        return "neither Pillow nor Pillow-SIMD is installed"
    turbo = found["libjpeg_turbo"]
    return (
        f"{found['which']} {found['version']} "
        f"{f'with libjpeg-turbo {turbo}' if turbo else 'WITHOUT libjpeg-turbo'}"
    )


def _numpy(found: Section) -> str:
    return str(found["version"]) if found["installed"] else "not installed"


def _environment(found: Section) -> str:
    return _listed(f"{name}={value}" for name, value in found.items())


def _listed(items: Any) -> str:
    return ", ".join(items) or "none"


def _bytes_or_unlimited(count: int | None) -> str:
    return "unlimited" if count is None else size(count)


def cuda_version(number: int) -> str:
    """Writes the version as people do: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


LINES: list[tuple[str, str, Callable[[Section], str]]] = [
    ("fastloader", "fastloader", _fastloader),
    ("Python", "python", _python),
    ("native module", "native", _native),
    ("compiled", "build", _compiler),
    ("instructions", "build", _instructions),
    ("libjpeg-turbo", "build", _libjpeg),
    ("other formats", "build", _formats),
    ("reading", "build", _reading),
    ("CPU", "cpu", _cpu),
    ("CUDA", "cuda", _cuda),
    ("CUDA devices", "cuda", _cuda_devices),
    ("NVIDIA", "nvidia", _nvidia),
    ("memory", "limits", _memory),
    ("pinned memory", "limits", _memlock),
    ("/dev/shm", "limits", _shm),
    ("open files", "limits", _open_files),
    ("container", "container", _container),
    ("torch", "torch", _torch),
    ("Pillow", "pillow", _pillow),
    ("numpy", "numpy", _numpy),
    ("environment", "environment", _environment),
]
