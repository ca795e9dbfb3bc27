"""What differs between a GPU and the rehearsal on the host twin: clocks, flushing, names."""

from __future__ import annotations

import gc
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from benchmarks.measure import Timing
from fastloader._core.machine import devices, extension


class Cuda:
    """The current CUDA device. Marks are events on the current stream, so that taking one costs the
    host no wait."""

    backend = "cuda"
    activities = (ProfilerActivity.CPU, ProfilerActivity.CUDA)

    def __init__(self) -> None:
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._properties = torch.cuda.get_device_properties(self.torch_device)
        self._flushed: torch.Tensor | None = None

    @property
    def name(self) -> str:
        return str(self._properties.name)

    @property
    def number(self) -> int:
        return int(self.torch_device.index)

    def driver(self) -> str:
        """Of the machine; else the newest CUDA version that the driver serves."""
        try:
            line = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
            found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", line)
            if found:
                return found[1]
        except (OSError, IndexError):
            pass
        try:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            said = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
            return said.stdout.split()[0]
        except (OSError, IndexError, subprocess.SubprocessError):
            native = extension.load()
            served = 0 if native is None else native.cuda_info()["driver_version"]
            return f"unknown, serves CUDA {served // 1000}.{served % 1000 // 10}"

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def release(self) -> None:
        """Memory that torch keeps for later goes back: other processes come to train beside this one."""
        gc.collect()
        torch.cuda.empty_cache()

    def stream(self) -> int:
        return devices.consumer_stream(self.torch_device)

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds; waits until both marks were passed."""
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def flush(self) -> None:
        """Drives everything else out of the L2 cache."""
        if self._flushed is None:
            cache = int(getattr(self._properties, "L2_cache_size", 0)) or 64 << 20
            self._flushed = torch.empty(4 * cache, dtype=torch.uint8, device=self.torch_device)
        self._flushed.zero_()

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Twin:
    """The host twin, over this machine's memory: everything runs, and no figure means anything."""

    backend = "host"
    activities = (ProfilerActivity.CPU,)
    torch_device = torch.device("cpu")
    name = "rehearsal on the host twin"
    number = 0

    def __init__(self) -> None:
        torch.set_num_threads(1)  # waiting for each other would take most of so little work's time

    def driver(self) -> str:
        return "none"

    def synchronize(self) -> None:
        pass  # handing over a batch waits for it here

    def release(self) -> None:
        gc.collect()

    def stream(self) -> int:
        return 0

    def mark(self) -> Any:
        return time.perf_counter()

    def between(self, begin: Any, end: Any) -> float:
        return float(end - begin)

    def flush(self) -> None:
        pass

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)


Device = Cuda | Twin


def slug(name: str) -> str:
    """What names the file of the results: "NVIDIA H100 80GB HBM3" is h100."""
    found = re.search(r"[a-z]*\d+[a-z]*", name.lower())
    return found[0] if found else re.sub(r"\W+", "-", name.lower()).strip("-")


def timed(
    device: Device, contenders: dict[str, Callable[[], Any]], repeats: int
) -> dict[str, Timing]:
    """The device's time for each call, in turns, the cache flushed before each. Nothing waits in
    between, so that each call is queued long before its turn and its launch is in no call's time."""
    for run in contenders.values():
        run()
    device.synchronize()
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in contenders}
    for number in range(repeats):
        order = list(contenders)
        if number % 2:
            order.reverse()
        for name in order:
            device.flush()
            begin = device.mark()
            contenders[name]()
            marks[name].append((begin, device.mark()))
    device.synchronize()
    return {
        name: Timing([device.between(begin, end) for begin, end in pairs])
        for name, pairs in marks.items()
    }
