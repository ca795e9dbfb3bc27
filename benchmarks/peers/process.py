"""The process of one scenario: ``python -m benchmarks.peers.process``, driven by the runner over its
standard input and output, one JSON object per line.

It is told the scenario and the settings, and answers with {"ready": ...} once the first epoch is over
(imports, compilation, page cache), or with {"skip": reason} when its peer cannot be imported. "plan"
beside "ready" is FastLoader's, where the scenario tells it. Then, to "epoch": {"pictures", "seconds",
"cpu_s_per_picture", "waits": seconds for each batch}; to "first": {"seconds"} from constructing another
dataset and loader to its first batch. With a device, the clock stops when what was queued on it is done.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.scenarios import Scenario, Settings

Epoch = Callable[[], Iterator[int]]
Commands = dict[str, Callable[[], dict[str, Any]]]
# What `serve` is to answer besides, made of what starts an epoch of batches, and the settings.
Further = Callable[[Callable[[], Iterator[Any]], Settings], Commands]
_TICKS = os.sysconf("SC_CLK_TCK")


def main(further: Further | None = None) -> None:
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    told = json.loads(sys.stdin.readline())
    scenario, settings = Scenario(**told["scenario"]), Settings(**told["settings"])
    try:
        module = importlib.import_module(f"benchmarks.peers.scenarios.{scenario.module}")
    except Exception as error:  # a broken package raises whatever it likes
        answer(skip=f"{type(error).__name__}: {error}")
        return
    try:
        make = getattr(module, scenario.function)
        versions = {"python": platform.python_version(), **module.versions()}
        serve(scenario, settings, lambda: make(settings), versions, answer, further)
    except Exception:
        answer(failed=traceback.format_exc())


def serve(
    scenario: Scenario,
    settings: Settings,
    make: Callable[[], Callable[[], Iterator[Any]]],
    versions: dict[str, str],
    answer: Callable[..., None],
    further: Further | None = None,
) -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # as in worker processes
    # The stages, which make no batch, run beside the loaders and have no device.
    device = settings.device if scenario.output else None
    settle = (lambda: _synchronize(device)) if device else (lambda: None)
    start = time.perf_counter()
    loader = make()
    epoch = counted(loader) if device else loader
    batches = epoch()
    next(batches)
    settle()
    cold = time.perf_counter() - start
    for _ in batches:
        pass
    commands: Commands = {
        "epoch": lambda: run(epoch, scenario.lead, settle),
        "first": lambda: {"seconds": first_batch(make, settle)},
    }
    if further is not None:
        commands |= further(loader, settings)
    answer(ready=versions, cold_first_batch_s=cold, plan=getattr(loader, "plan", ""))
    for line in sys.stdin:
        answer(**commands[line.strip()]())


def counted(batches: Callable[[], Iterator[Any]]) -> Epoch:
    return lambda: (len(labels) for _images, labels in batches())


def _synchronize(device: str) -> None:
    import torch

    from fastloader._core.machine import devices

    devices.synchronize(torch.device(device))


def run(epoch: Epoch, lead: int, settle: Callable[[], None]) -> dict[str, Any]:
    cpu = cpu_seconds()
    batches = epoch()
    ahead = sum(next(batches) for _ in range(lead))
    start = time.perf_counter()
    arrivals, pictures = [start], 0
    for count in batches:
        arrivals.append(time.perf_counter())
        pictures += count
    settle()
    seconds = time.perf_counter() - start
    cpu = (cpu_seconds() - cpu) / (ahead + pictures)
    waits = [later - sooner for sooner, later in itertools.pairwise(arrivals)]
    return {"pictures": pictures, "seconds": seconds, "cpu_s_per_picture": cpu, "waits": waits}


def cpu_seconds() -> float:
    """Of this process with all its threads, and of its worker processes."""
    return time.process_time() + sum(_ticks(child) for child in _children("self")) / _TICKS


def _ticks(process: str) -> int:
    try:
        # Behind the name, which may hold anything, come state, ..., utime (14th), stime (15th).
        fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    own = int(fields[11]) + int(fields[12])
    return own + sum(_ticks(child) for child in _children(process))


def _children(process: str) -> list[str]:
    found: list[str] = []
    for each in Path("/proc", process, "task").glob("*/children"):
        try:
            found += each.read_text().split()
        except OSError:
            pass
    return found


def first_batch(
    make: Callable[[], Callable[[], Iterator[Any]]], settle: Callable[[], None]
) -> float:
    start = time.perf_counter()
    epoch = make()
    batches = epoch()
    next(batches)
    settle()
    seconds = time.perf_counter() - start
    # What it has begun beyond that batch must end before anything else is measured.
    batches.close()  # type: ignore[attr-defined]
    del batches, epoch
    gc.collect()
    return seconds


if __name__ == "__main__":
    main()
