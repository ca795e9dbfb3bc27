"""What is on this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


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
