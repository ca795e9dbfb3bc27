"""``fastloader.build_info()``: what is compiled in, what was found, and what is missing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fastloader._core.machine import extension


def build_info() -> dict[str, Any]:
    """Describes what this installation consists of, as a dict that JSON can hold. Needs neither torch
    nor a GPU.

    Keys: ``version``; ``python``; ``native`` (``loaded``: bool, ``why_not``: words, empty when
    loaded); and, when loaded, ``compiler``, ``cpu`` (``isa`` in use and those ``available``;
    ``problem`` if FASTLOADER_FORCE_ISA names another),
    ``jpeg`` (libjpeg-turbo compiled against and found, and what it decodes whole), None if this build
    leaves to Pillow the JPEGs that fastloader's own decoder does not know,
    ``png`` (zlib compiled against and found) and ``webp`` (libwebp found), each None if this build
    leaves the format to Pillow,
    ``io_uring`` ("in use" for reading files ahead, "refused" by the system, as containers often do, or
    "not compiled in": then threads read them),
    ``cuda`` (``compiled_in``,
    ``runtime_version`` and ``driver_version`` as CUDA counts, 13000 is 13.0, ``architectures``,
    ``devices``, ``problem``: why it cannot be used, empty when it can).
    """
    loaded = extension.load() is not None
    info: dict[str, Any] = {
        "version": installed_version(),
        "python": platform.python_version(),
        "native": {"loaded": loaded, "why_not": _why_not()},
    }
    if loaded:
        found = extension.native.build_info()
        keys = ("compiler", "cpu", "jpeg", "png", "webp", "io_uring", "cuda")
        info.update({key: found[key] for key in keys})
        for device in info["cuda"]["devices"]:
            device["capability"] = list(device["capability"])
    return info


def installed_version() -> str:
    """Returns the version that the package's metadata names. A source tree that was never installed has
    none, and says its own in ``version.txt``."""
    try:
        return version("fastloader")
    except PackageNotFoundError:
        file = Path(__file__).resolve().parents[3] / "version.txt"
        return f"{file.read_text().strip()}, not installed" if file.is_file() else "unknown"


def _why_not() -> str:
    if extension.switched_off():
        return "switched off by FASTLOADER_NATIVE=0"
    if extension.left_out():
        return "this wheel was built without it (FASTLOADER_NATIVE=0 at install time)"
    return extension.problem()
