"""Looks at the machine for ``fastloader doctor``. Standard library only; every probe may fail by
itself."""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import io
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import fastloader
from fastloader._core.machine import extension
from fastloader._core.machine.build_info import installed_version
from fastloader._core.machine.limits import cpu_quota, memory_limit

Section = dict[str, Any]
Report = dict[str, Section]


def survey() -> Report:
    """Returns everything that was found, as a JSON-able dict. A probe that failed left only
    ``error``."""
    return {name: guarded(probe) for name, probe in PROBES.items()}


def guarded(probe: Callable[[], Section]) -> Section:
    try:
        return probe()
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {first_line}"}


def _fastloader() -> Section:
    return {"location": fastloader.__path__[0], "version": installed_version()}


def _python() -> Section:
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def _native() -> Section:
    loaded = extension.load() is not None
    off, left_out = extension.switched_off(), extension.left_out()
    return {
        "loaded": loaded,
        "wanted": not (off or left_out),
        "switched_off": off,
        "left_out": left_out,
        "why_not": extension.problem(),
        "file": extension.native.__file__ if loaded else None,
    }


def _build() -> Section:
    if extension.load() is None:
        return {}
    libjpeg = (info := extension.native.build_info())["jpeg"] or {}
    return {
        "version": info["version"],
        "compiler": info["compiler"],
        "isa": info["cpu"]["isa"],
        "isas_available": list(info["cpu"]["available"]),
        "libjpeg_turbo_compiled": libjpeg.get("compiled_version"),
        "libjpeg_at_run_time": libjpeg.get("runtime"),
        "libjpeg_decoded_whole": list(libjpeg.get("decoded_whole", ())),
        "zlib": info["png"] and info["png"]["runtime"],
        "libwebp": info["webp"] and info["webp"]["runtime"],
        "io_uring": info["io_uring"],
    }


def _cuda() -> Section:
    if extension.load() is None:
        return {}
    info: Section = dict(extension.native.cuda_info())
    info["devices"] = [
        {**device, "capability": list(device["capability"])} for device in info["devices"]
    ]
    return info


def _nvidia() -> Section:
    """Returns what the machine has, whatever fastloader and torch were built for."""
    return {
        "pci_gpus": _pci_gpus(),
        "kernel_driver": _first_line("/proc/driver/nvidia/version"),
        "nvcc": _nvcc(),
        "gpus": _nvidia_smi(),
    }


def _pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    return sum(
        _first_line(vendor) == "0x10de"
        and (_first_line(vendor.with_name("class")) or "").startswith("0x03")
        for vendor in devices.glob("*/vendor")
    )


def _nvcc() -> str | None:
    candidates = [os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    return next((path for path in candidates if path and Path(path).is_file()), None)


def _nvidia_smi() -> list[dict[str, str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []  # no GPU behind it, or no driver: the probes above say more
    rows = csv.reader(io.StringIO(answer.stdout), skipinitialspace=True)
    return [
        dict(zip(("name", "driver_version", "memory"), row, strict=True))
        for row in rows
        if len(row) == 3
    ]


def _cpu() -> Section:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "model": _cpu_model(),
        "count": os.cpu_count(),
        "affinity": affinity,
        "cgroup_quota": cpu_quota(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _limits() -> Section:
    import resource  # not on every system

    def soft_limit(kind: int) -> int | None:
        soft = resource.getrlimit(kind)[0]
        return None if soft == resource.RLIM_INFINITY else soft  # None: unlimited

    return {
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cgroup_memory": memory_limit(),
        "memlock": soft_limit(resource.RLIMIT_MEMLOCK),
        "open_files": soft_limit(resource.RLIMIT_NOFILE),
        **_shared_memory(Path("/dev/shm")),
    }


def _shared_memory(folder: Path) -> Section:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return {"shm": None, "shm_free": None}
    return {"shm": usage.total, "shm_free": usage.free}


def _container() -> Section:
    signs = {
        "docker": Path("/.dockerenv").exists(),
        "podman": Path("/run/.containerenv").exists(),
        "kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ,
        "apptainer": "APPTAINER_NAME" in os.environ or "SINGULARITY_NAME" in os.environ,
        "slurm job": "SLURM_JOB_ID" in os.environ,
        "WSL": "microsoft" in platform.release().lower(),
    }
    return {"signs": [name for name, seen in signs.items() if seen]}


def _torch() -> Section:
    torch = _imported("torch")
    if torch is None:
        return {"installed": False}
    return {
        "installed": True,
        "version": str(torch.__version__),
        "cuda_build": torch.version.cuda,
        "hip_build": torch.version.hip,
        **guarded_value("accelerator", lambda: _accelerator()),
        "threads": torch.get_num_threads(),
    }


def _accelerator() -> str | None:
    from fastloader._core.machine import devices

    return devices.accelerator_type()


def guarded_value(name: str, probe: Callable[[], Any]) -> Section:
    """Returns ``{name: value}``, or None for the value and the reason under ``<name>_error``."""
    try:
        return {name: probe()}
    except Exception as error:
        return {name: None, f"{name}_error": f"{type(error).__name__}: {error}"}


def _pillow() -> Section:
    pil = _imported("PIL")
    installed = [name for name in ("pillow", "pillow-simd") if _is_distributed(name)]
    if pil is None:
        return {"installed": False, "distributions": installed}
    importlib.import_module("PIL.Image")  # loads the C part: a broken one must show here
    from PIL import features

    version = str(pil.__version__)
    turbo = bool(features.check_feature("libjpeg_turbo"))
    return {
        "installed": True,
        # Both distributions call their package PIL; only Pillow-SIMD has post-releases.
        "which": "Pillow-SIMD" if ".post" in version else "Pillow",
        "version": version,
        "distributions": installed,
        "libjpeg_turbo": features.version_feature("libjpeg_turbo") if turbo else None,
    }


def _is_distributed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _numpy() -> Section:
    numpy = _imported("numpy")
    if numpy is None:
        return {"installed": False}
    return {"installed": True, "version": str(numpy.__version__)}


def _imported(name: str) -> ModuleType | None:
    """Imports the module; None where it is not installed. What a broken one raises comes through."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise


def _environment() -> Section:
    others = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("FASTLOADER_") or name in others
    }


def _first_line(path: str | Path) -> str | None:
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return None
    return lines[0].strip() if lines else None


PROBES: dict[str, Callable[[], Section]] = {
    "fastloader": _fastloader,
    "python": _python,
    "native": _native,
    "build": _build,
    "cuda": _cuda,
    "nvidia": _nvidia,
    "cpu": _cpu,
    "limits": _limits,
    "container": _container,
    "torch": _torch,
    "pillow": _pillow,
    "numpy": _numpy,
    "environment": _environment,
}
