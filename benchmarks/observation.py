"""What watching costs: the statistics that are always on, against the same loader without them.

    python benchmarks/observation.py [--starts 4] [--repeats 16] [--pictures 400] [--out DIR]

The switch is FASTLOADER_STAGE_TIMES=0, which is for this benchmark only: it keeps threads from looking
at the clock. It is read when the module is loaded, so each side is a process of its own; they take
turns, a quarter of a second of epochs at a time. Scenarios: pictures of a usual size and tiny ones,
where the looks at the clock weigh most, decoded natively; arrays; and a dataset in Python. Two ratios:
of the time on the wall, and of the processor time of all threads, which others disturb less.
Where a process happens to have its memory makes a per cent, so each side is started anew several times,
and a third process, which does not watch either, tells how far two equal sides are apart.
Predicted: a handful of looks at the clock (25 ns each) for a picture that takes 100 us at least, and one
picture in 16 with two for each of its rows: under 1 % everywhere, and not to be told from the spread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Timing, interleaved, make_photographs, ratio, write
from torch.utils.data import Dataset, TensorDataset

from fastloader import FastLoader
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose, Resize

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCENARIOS = ("pictures", "tiny pictures", "arrays", "Python")
SIDES = ("on", "off", "off again")
LIMIT = 0.01


class Samples(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int) -> None:
        self.image = torch.zeros(3, 64, 64, dtype=torch.uint8)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.image, index


def make_pictures(root: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for name, (height, width) in (("pictures", (375, 500)), ("tiny pictures", (40, 48))):
        make_photographs(root / name / "all", count, height, width, rng)


def make_loader(scenario: str, root: Path, pictures: int) -> Any:
    common: dict[str, Any] = {"batch_size": 32, "device": "cpu"}
    if scenario == "arrays":
        rows = torch.zeros(pictures * 20, 3, 32, 32, dtype=torch.uint8)
        return FastLoader(TensorDataset(rows), num_workers=1, **common)
    if scenario == "Python":
        return FastLoader(Samples(pictures * 20), mean=MEAN, std=STD, **common)
    size = 224 if scenario == "pictures" else 32
    dataset = ImageFolder(root / scenario, Compose([Resize(size), CenterCrop(size)]))
    return FastLoader(dataset, num_workers=1, mean=MEAN, std=STD, **common)


def serve(scenario: str, root: Path, pictures: int) -> None:
    """For each number that comes in so many epochs; out comes a line, their (processor) seconds."""
    torch.set_num_threads(1)
    loader = make_loader(scenario, root, pictures)
    for line in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            for _ in loader:
                pass
        print(time.perf_counter() - start, time.process_time() - cpu, flush=True)


def begin(scenario: str, root: Path, pictures: int, on: bool) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--serve", scenario, "--data", str(root)]
    command += ["--pictures", str(pictures)]
    environment = {**os.environ, "FASTLOADER_STAGE_TIMES": "1" if on else "0"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def epochs_of(process: subprocess.Popen[str], count: int) -> tuple[float, float]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process of the benchmark died; its words are above")
    seconds, cpu = map(float, line.split())
    return seconds, cpu


def timer(process: subprocess.Popen[str], count: int, cpus: list[float]) -> Callable[[], float]:
    """Appends the processor seconds of each call to ``cpus``."""

    def run() -> float:
        seconds, cpu = epochs_of(process, count)
        cpus.append(cpu)
        return seconds

    return run


def watch(scenario: str, root: Path, pictures: int, starts: int, repeats: int) -> dict[str, Any]:
    """Seconds and processor seconds of each side, over ``starts`` processes and ``repeats`` of each."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    cpus: dict[str, list[float]] = {side: [] for side in SIDES}
    count = 0
    for start in range(starts):
        order = list(SIDES) if start % 2 else list(reversed(SIDES))
        processes = {side: begin(scenario, root, pictures, side == "on") for side in order}
        try:
            for each in processes.values():
                epochs_of(each, 1)
            count = count or max(1, round(0.25 / epochs_of(processes["on"], 1)[0]))
            timed = interleaved(
                {side: timer(each, count, cpus[side]) for side, each in processes.items()},
                repeats,
                warm_up=0,
            )
        finally:
            for each in processes.values():
                assert each.stdin is not None
                each.stdin.close()
                each.wait()
        for side, timing in timed.items():
            seconds[side] += timing.seconds
    return {
        "on_over_off": ratio(Timing(seconds["on"]), Timing(seconds["off"])),
        "cpu_on_over_off": ratio(Timing(cpus["on"]), Timing(cpus["off"])),
        "cpu_control_over_off": ratio(Timing(cpus["off again"]), Timing(cpus["off"])),
        "epochs": count,
        "timings": {side: Timing(each).as_json() for side, each in seconds.items()},
    }


def per_cent(found: dict[str, float]) -> str:
    median, least, most = (100 * (found[name] - 1) for name in ("median", "min", "max"))
    return f"{median:+.2f} % ({least:+.1f} to {most:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=SCENARIOS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.data, arguments.pictures)
        return
    results: dict[str, Any] = {"limit": LIMIT, "scenarios": {}}
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(Path(folder), arguments.pictures)
        for scenario in SCENARIOS:
            found = watch(
                scenario, Path(folder), arguments.pictures, arguments.starts, arguments.repeats
            )
            results["scenarios"][scenario] = found
            print(
                f"{scenario:<14} {per_cent(found['on_over_off'])}, of processor time "
                f"{per_cent(found['cpu_on_over_off'])}; off against off: "
                f"{per_cent(found['cpu_control_over_off'])}",
                flush=True,
            )
    print("written:", write("observation", results, *([arguments.out] if arguments.out else [])))


if __name__ == "__main__":
    main()
