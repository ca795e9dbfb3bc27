"""``fastloader doctor``: what this installation consists of, what was found, what to do about it."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Callable
from typing import Any

from fastloader.cli.doctor import advice, probes
from fastloader.cli.doctor.advice import size
from fastloader.cli.doctor.probes import Report, Section


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
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
    steps = advice.advise(report)
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
    """One labelled line for each thing examined."""
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
    """What a JPEG library says of itself. libjpeg-turbo does not tell its own version, but that of
    the libjpeg whose interface it has ("6b", of 1998), and the years of its copyright."""
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
    """As people write it: 12040 is 12.4."""
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
