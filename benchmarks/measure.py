"""What the benchmarks share: made-up photographs, the results, and timing that survives a noisy machine
(interleaved repeats, medians and spread, ratios per round)."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

RESULTS = Path(__file__).parent / "results"


@dataclasses.dataclass
class Timing:
    """Seconds of each repeat."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, float]:
        return {"median_s": self.median, "min_s": min(self.seconds), "max_s": max(self.seconds)}


def interleaved(
    contenders: dict[str, Callable[[], Any]], repeats: int, warm_up: int = 2
) -> dict[str, Timing]:
    """Runs every contender once per round, so that drift of the machine hits all alike. One that
    returns a float has timed itself, in seconds."""
    for _ in range(warm_up):
        for run in contenders.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(repeats):
        order = list(contenders)
        if round_number % 2:
            order.reverse()
        for name in order:
            start = time.perf_counter()
            timed = contenders[name]()
            seconds[name].append(timed if isinstance(timed, float) else time.perf_counter() - start)
    return {name: Timing(values) for name, values in seconds.items()}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(slower: Timing, faster: Timing) -> dict[str, float]:
    """How many times ``faster`` beats ``slower``: median over the rounds, and the extremes."""
    return spread([a / b for a, b in zip(slower.seconds, faster.seconds, strict=True)])


def machine() -> dict[str, Any]:
    import torch

    import fastloader
    from fastloader._core.machine import devices

    info = fastloader.build_info()
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "isa": info.get("cpu", {}).get("isa"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fastloader": info["version"],
        "gpu": devices.cuda_name(),
    }


def write(name: str, results: dict[str, Any], folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **results}, indent=2) + "\n")
    return path


def make_photographs(
    folder: Path, count: int, height: int, width: int, rng: np.random.Generator
) -> None:
    """Smooth pictures with some noise: they decode about as photographs do."""
    folder.mkdir(parents=True)
    y, x = np.mgrid[0:height, 0:width]
    for number in range(count):
        planes = [127 + 90 * np.sin(x / rng.uniform(9, 40) + y / 17) for _ in range(3)]
        image = np.stack(planes, -1) + rng.normal(0, 8, (height, width, 3))
        picture = Image.fromarray(image.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:05}.jpg", quality=90)
