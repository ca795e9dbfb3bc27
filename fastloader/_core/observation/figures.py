"""The figures of a loader, in plain values: the stages that its batches passed, and all that is known of
the loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from fastloader._core.observation.headspace import Measured
from fastloader._core.observation.statistics import Statistics

LOOP = "the training loop's thread"
PER_PROCESSOR = "one for each processor of this process"  # what num_workers="auto" begins with

# What a loop is short of while it waits for a stage: reading ("storage"), decoding, the dataset's own
# code ("Python"), or moving bytes, which native threads do ("gather") or others ("copy"). On a cluster:
# the actors, whatever they do ("remote workers"), or what lies between them and the loop ("network").
Bound = Literal["storage", "decode", "Python", "gather", "copy", "remote workers", "network"]


# What one of several is called. The loop's own thread and the device are one always.
_ONE = {
    "decode threads": "1 decode thread",
    "gather threads": "1 gather thread",
    "worker processes": "1 worker process",
    "worker threads": "1 worker thread",
    "Ray actors": "1 Ray actor",
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the way of a batch. It took ``seconds`` of thread time, summed over ``threads`` (0:
    the device), for ``count`` pictures or batches, as ``unit`` says. ``where`` names the threads that
    work. ``bound``: what `judge` says if the loop waits for these threads; None if they do no work."""

    name: str
    seconds: float
    count: int
    unit: str
    where: str
    threads: int = 1
    bound: Bound | None = dataclasses.field(kw_only=True)

    @property
    def each_ms(self) -> float:
        """Milliseconds for one picture or batch."""
        return 1000 * self.seconds / self.count if self.count else 0.0

    @property
    def by(self) -> str:
        """Who works, in words: "4 decode threads"."""
        if self.threads > 1:
            return f"{self.threads} {self.where}"
        return _ONE.get(self.where, self.where)

    def as_dict(self) -> dict[str, Any]:
        """What ``stats()["stages"]`` has."""
        shown = dataclasses.asdict(self)
        del shown["bound"]
        return {**shown, "each_ms": self.each_ms}


@dataclasses.dataclass(frozen=True)
class Figures:
    """The figures of one source, or of one delivery, since the loader was made.

    ``threads``: how many own threads make batches. ``depth``: how many batches are made ahead at most.
    ``ahead``: whether batches are made ahead of the loop even without workers, as many as depth="auto"
    says. ``packed``: whether the pictures lie in one file. ``workers``: what num_workers="auto" has come
    to. ``ring``: the native ring's counters, as ``stats()["ring"]`` has them."""

    stages: tuple[Stage, ...] = ()
    threads: int | None = None
    depth: int | None = None
    ahead: bool = False
    bytes_read: int = 0
    bad_samples: int = 0
    packed: bool = False
    workers: AutoChoice | None = None
    ring: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def joined(self, other: Figures) -> Figures:
        """The figures of both, if a batch passes this one first. This one says what both know."""
        return Figures(
            stages=(*self.stages, *other.stages),
            threads=other.threads if self.threads is None else self.threads,
            depth=other.depth if self.depth is None else self.depth,
            ahead=self.ahead or other.ahead,
            bytes_read=self.bytes_read + other.bytes_read,
            bad_samples=self.bad_samples + other.bad_samples,
            packed=self.packed or other.packed,
            workers=self.workers or other.workers,
            ring=self.ring or other.ring,
        )


@dataclasses.dataclass(frozen=True)
class AutoChoice:
    """What "auto" has chosen, and why."""

    chosen: int | None  # None if there is nothing to choose
    why: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Observation:
    """One loader as `judge` and `make_report` see it: plain values, and ``describe``.

    ``statistics``: a copy of the loader's counters. ``figures``: those of its source and its delivery,
    joined, with the stages in the order of a sample's way. ``workers``: the argument ``num_workers``.
    ``ahead``: whether batches are made before the loop asks for them. ``path``: as ``stats()["path"]``
    has it. ``normalizes``: whether the loader normalises images. ``auto``: the choices, by the name of
    the argument that was "auto". ``describe``: gives the loader's ``plan()``, and is called only if the
    advice needs it."""

    statistics: Statistics
    figures: Figures
    workers: int
    worker_backend: str
    ahead: bool
    path: str
    device: torch.device | None
    normalizes: bool
    auto: Mapping[str, AutoChoice]
    headspace: Measured | None
    describe: Callable[[], str]

    @property
    def on_accelerator(self) -> bool:
        return self.device is not None and self.device.type != "cpu"

    @property
    def depth(self) -> int | None:
        """How many batches are made ahead at most; None if none are."""
        ring = self.figures.ring
        return int(ring["depth"]) if ring else self.figures.depth

    @property
    def fixed_workers(self) -> bool:
        """Whether ``num_workers`` is a number that the user has chosen, and may change."""
        return "num_workers" not in self.auto

    @property
    def looped_s(self) -> float:
        """The seconds of the loop's steps and of its waiting between them."""
        statistics = self.statistics
        return statistics.wait_s - statistics.edge_wait_s + statistics.step_s

    @property
    def seconds(self) -> float:
        """The seconds in which the loop took batches, with the first and the last waits of epochs."""
        return self.looped_s + self.statistics.edge_wait_s

    @property
    def steps_per_s(self) -> float | None:
        """The loop's steps per second with this loader; None before it was measured."""
        steps, looped = self.statistics.steps, self.looped_s
        return steps / looped if looped > 0 and steps else None

    @property
    def to_win(self) -> float | None:
        """How much faster the loop would be if data were free: 0.25 is a quarter more steps per second.
        None unless `free_steps_per_s` is known."""
        free = self.free_steps_per_s
        if self.steps_per_s is None or free is None:
            return None
        return max(0.0, free / self.steps_per_s - 1)

    @property
    def free_steps_per_s(self) -> float | None:
        """Returns the loop's steps per second if data were free. None unless ``loader.headspace()`` has
        measured five steps: what fewer take is chance, and the first ones of a process take long."""
        measured = self.headspace
        return None if measured is None or measured.steps < 5 else measured.steps_per_s

    @property
    def wait_share(self) -> float | None:
        """The share of the loop's time that it waited; None before the second batch of an epoch."""
        statistics = self.statistics
        if self.looped_s <= 0 or not statistics.between:
            return None
        return (statistics.wait_s - statistics.edge_wait_s) / self.looped_s
