"""Trains for ``fastloader demo``, once with each loader, and measures memory meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from fastloader import FastLoader, transforms
from fastloader._core.machine import devices
from fastloader._core.machine.limits import available_threads
from fastloader.datasets import ImageFolder
from fastloader.datasets.files import IMG_EXTENSIONS
from fastloader.transforms._pillow import regular_file

# ---- How much memory this process and its children hold, while something runs.


class PeakMemory:
    """Measures the peak of memory: ``with PeakMemory() as peak:`` samples five times a second.
    ``peak.bytes`` is the largest sum over this process and its descendants, or None where the system
    does not tell.

    Proportional set size: a page that several processes share (torch's own code after a fork, a batch
    on its way) counts once in all, where the usual RSS would count it for each of them.
    """

    _INTERVAL = 0.2

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="demo-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            now = held_by("self")
            if now:
                self.bytes = max(self.bytes or 0, now)
            if self._stop.wait(self._INTERVAL):
                return


def held_by(process: str) -> int:
    """Bytes held by a process and its descendants; 0 for what has ended or cannot be read."""
    folder = Path("/proc", process)
    total = 0
    try:
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        for children in folder.glob("task/*/children"):
            total += sum(held_by(child) for child in children.read_text().split())
    except OSError:
        pass
    return total


# ---- The training run that ``fastloader demo`` times, once with each loader.


MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

_WARM_UP_STEPS = 3
_PAGE_CACHE_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Job:
    """One run. Two jobs that differ in ``loader`` only see the same pictures in the same order; the
    crops are drawn from other random numbers."""

    loader: str  # "FastLoader" or "DataLoader"
    folder: Path
    device: str
    steps: int
    batch_size: int
    workers: int  # decode threads of FastLoader, worker processes of DataLoader
    size: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Run:
    """The measurements of a run."""

    job: Job
    classes: list[str]
    asked: list[float]  # when the loop asked for each batch, in seconds since it began
    waits: list[float]  # seconds until it had that batch
    seconds: float  # from the first question for a batch to the end of the last step
    cpu: float  # seconds of all processors, of this process and the workers, their start included
    losses: list[float]
    memory: int | None  # bytes, this process and the workers
    device_memory: int | None  # bytes, of torch's allocator
    threads: int  # that torch computes with on the CPU
    labels: list[int]  # of every picture, in order
    plan: str  # FastLoader's: which path it took
    started_by: str  # how DataLoader's worker processes begin: "fork", "forkserver" or "spawn"

    @property
    def images_per_second(self) -> float:
        """The pictures per second after the first batch, whose latency is a figure of its own."""
        seconds = self.seconds - self.waits[0]
        return (self.job.steps - 1) * self.job.batch_size / seconds if seconds > 0 else math.nan

    @property
    def final_loss(self) -> float:
        """Mean over the last tenth: the loss of one batch says little."""
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return sum(last) / len(last)


def resolve_device(device: str) -> str:
    """Returns the device that ``device`` means here. Raises ValueError for one that is not there."""
    return str(devices.resolve_device(device))


def make_dataset(folder: Path, size: int) -> ImageFolder:
    """Makes a dataset of random crops, mirrored half the time. Raises FileNotFoundError when there is no
    picture."""
    chain = transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    )
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    dataset = None
    if any(entry.is_dir() for entry in folder.iterdir()):
        dataset = ImageFolder(folder, chain, allow_empty=True)
    if not dataset:
        raise FileNotFoundError(
            f"there is no picture in the class folders of {folder}; looked for "
            f"{', '.join(IMG_EXTENSIONS)}"
        )
    return dataset


def make_network(classes: int) -> nn.Module:
    channels = [3, 8, 16, 32, 64]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(channels):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes)]
    return nn.Sequential(*layers)


def make_loader(job: Job, dataset: ImageFolder) -> tuple[Any, Callable[[Any], Any]]:
    """Makes the loader, and returns with it what the training loop does to each of its batches before
    the network."""
    device = torch.device(job.device)
    arguments: dict[str, Any] = {
        "batch_size": job.batch_size,
        "shuffle": True,
        "num_workers": job.workers,
        "pin_memory": device.type == "cuda",
        "drop_last": True,
        "persistent_workers": job.workers > 0,
        "generator": torch.Generator().manual_seed(job.seed),
    }
    if job.loader == "FastLoader":
        return FastLoader(dataset, **arguments, device=device, mean=MEAN, std=STD), lambda b: b

    mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=device).view(1, 3, 1, 1)

    def prepare(batch: Any) -> Any:
        images, labels = batch
        images = images.to(device, non_blocking=True).float().div_(255).sub_(mean).div_(std)
        return images, labels.to(device, non_blocking=True)

    return DataLoader(dataset, **arguments), prepare


def ready_batches(
    loader: Any,
    prepare: Callable[[Any], Any],
    steps: int,
    asks: list[float],
    waits: list[float],
) -> Iterator[Any]:
    """Gives ``steps`` batches as the network takes them, over as many epochs as that needs. Appends to
    ``asks`` when each was asked for, and to ``waits`` the seconds until it was there."""
    iterator = None
    for _ in range(steps):
        asked_at = time.perf_counter()
        if iterator is None:
            iterator = iter(loader)
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(loader)
            batch = next(iterator)
        batch = prepare(batch)
        asks.append(asked_at)
        waits.append(time.perf_counter() - asked_at)
        yield batch


class Trainer:
    """Network, loss and optimiser; the same from the start for the same seed."""

    def __init__(self, device: torch.device, classes: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._network = make_network(classes).to(device).train()
        self._optimizer = torch.optim.AdamW(self._network.parameters(), lr=2e-3)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self._network(images), labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def train_and_send(job: Job, sender: Connection) -> None:
    """Trains in a process of its own, because memory, caches and threads that one loader leaves behind
    would otherwise be counted for the other. Sends a Run, or what is wrong with the pictures."""
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A spawned process spawns, too, unless it is told otherwise. DataLoader's workers begin as they do
    # in a script of one's own: on Linux by fork, which takes a fraction of the time.
    multiprocessing.set_start_method(None, force=True)
    answer: Run | str
    try:
        answer = train(job)
    except OSError as error:
        # From a worker it carries a traceback; what happened is in the last line.
        answer = str(error).strip().splitlines()[-1].removeprefix("OSError: ")
        # Which picture it was, where the exception cannot say so.
        answer += "".join(f" ({note})" for note in getattr(error, "__notes__", []))
    sender.send(answer)


def train(job: Job) -> Run:
    device = torch.device(job.device)
    device_module = getattr(torch, device.type)
    if device.type == "cpu":
        # Decoding keeps the other processors busy; torch's threads, waiting for one another at
        # every layer, would lose far more time to it than a second thread wins.
        torch.set_num_threads(max(1, available_threads() - job.workers))
    dataset = make_dataset(job.folder, job.size)
    _warm_up(job, dataset, device)
    trainer = Trainer(device, len(dataset.classes), job.seed)
    loader, prepare = make_loader(job, dataset)
    if hasattr(device_module, "reset_peak_memory_stats"):
        device_module.reset_peak_memory_stats(device)

    asks: list[float] = []
    waits: list[float] = []
    losses: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []
    # Shown on a terminal only.
    bar = tqdm(total=job.steps, desc=job.loader, unit="step", disable=None, dynamic_ncols=True)
    with PeakMemory() as memory, bar:
        cpu, start = _cpu_seconds(), time.perf_counter()
        batches = ready_batches(loader, prepare, job.steps, asks, waits)
        for step, (images, labels) in enumerate(batches):
            losses.append(trainer.step(images, labels))
            seen.append(labels)
            if step % 10 == 9 or step == job.steps - 1:
                # Not at every step: item() waits for the device.
                loss = losses[-1].item()
                speed = (step + 1) * job.batch_size / (time.perf_counter() - start)
                bar.set_postfix_str(f"loss {loss:.3f}, {speed:.0f} img/s", refresh=False)
                bar.update(step + 1 - bar.n)
        seconds = time.perf_counter() - start  # the last item() has waited for the device

    device_memory = None
    if hasattr(device_module, "max_memory_allocated"):
        device_memory = int(device_module.max_memory_allocated(device))
    plan = ""
    if isinstance(loader, FastLoader):
        plan = loader.plan()
        loader.close()
    del loader  # its workers end, and only then does the system tell their time
    return Run(
        job=job,
        classes=dataset.classes,
        asked=[asked - start for asked in asks],
        waits=waits,
        seconds=seconds,
        cpu=_cpu_seconds() - cpu,
        losses=[float(loss) for loss in losses],
        memory=memory.bytes,
        device_memory=device_memory,
        threads=torch.get_num_threads(),
        labels=torch.cat(seen).tolist(),
        plan=plan,
        started_by=multiprocessing.get_start_method(),
    )


def _cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _warm_up(job: Job, dataset: ImageFolder, device: torch.device) -> None:
    """Does what only the first run would pay for: files into the page cache, torch's threads and
    kernels."""
    budget = _PAGE_CACHE_BYTES
    for path, _ in dataset.samples[: job.steps * job.batch_size]:
        with regular_file(path) as file:
            budget -= len(file.read())
        if budget < 0:
            break
    trainer = Trainer(device, len(dataset.classes), job.seed)
    images = torch.zeros(job.batch_size, 3, job.size, job.size, device=device)
    labels = torch.zeros(job.batch_size, dtype=torch.int64, device=device)
    for _ in range(_WARM_UP_STEPS):
        trainer.step(images, labels).item()
