"""Says where the time of a training loop went, what bounds it, and the one change that would help
most."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastloader._core.machine.limits import own_threads, ranks_here
from fastloader._core.observation.report_page import ReportPage
from fastloader._core.observation.statistics import AutoChoice, Bound, Observation, Stage, Step

# ---- What bounds a training loop, in words, and the one change that would help most.


# A loop that waits less than this share of its time has next to nothing to win. So has one that was
# measured to be so much faster, at most, if data were free.
WAITS = 0.1
LITTLE = 0.05


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of what bounds a loop. ``bound`` is "storage", "decode", "copy", "Python", "remote
    workers", "network", "GPU", "training step" or "unknown"."""

    bound: str
    text: str
    advice: str


@dataclasses.dataclass(frozen=True)
class _Resource:
    """Something that could be the bottleneck, and the share of the time that it was at work."""

    busy: float
    bound: Bound
    stages: tuple[Stage, ...]

    @property
    def threads(self) -> int:
        return self.stages[0].threads

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def judge(seen: Observation) -> Verdict:
    stages, share, seconds = seen.figures.stages, seen.wait_share, seen.seconds
    if share is None or seconds <= 0:
        if seen.statistics.batches > 1:
            text = (
                "nothing to say: no epoch has had a second batch, and all waits were for first ones"
            )
            return Verdict("unknown", text, "run epochs of a few batches")
        return Verdict("unknown", "nothing to say yet: too few batches", "run a few more batches")
    resources = _resources(stages, seconds)
    device_wait = seen.figures.ring.get("device_wait_s", 0.0) / seconds
    busiest = max(resources, key=lambda each: each.busy, default=None)
    if seen.on_accelerator and device_wait > max(0.5, busiest.busy if busiest else 0.0):
        # The host runs ahead of the device, and therefore waits in next() for its own work there.
        return Verdict(
            "GPU",
            f"GPU-bound: batches wait for the training step {_percent(device_wait)} of the time",
            _NOTHING,
        )
    waits = f"the loop waits for data {_percent(share)} of its time"
    if share < WAITS or (seen.to_win is not None and seen.to_win < LITTLE):
        return _step(seen, share, waits)
    if busiest is None or (busiest.busy < share / 2 and _from_python(stages)):
        # Either nothing tells the workers' time (no shared slots), or they are slow to hand over.
        return Verdict(
            "Python",
            f"Python-bound: {waits}, and nothing but Python can be what it waits for",
            _python_advice(seen, None),
        )
    if busiest.bound in ("remote workers", "network") and busiest.busy < share / 2:
        return Verdict(
            "unknown",
            f"{waits}, and neither the actors nor the network are busy half of it",
            "raise prefetch_factor, because a batch waits for its way to the actor and back; actors "
            "also take seconds to start",
        )
    if busiest.busy < share / 2 and busiest.bound != "Python":
        return Verdict(
            "unknown",
            f"{waits}, and nothing that is timed is at work half of it: most are the "
            f"{busiest.stages[0].by}, {_percent(busiest.busy)}",
            "take a loader.trace(path): it shows what runs while the loop waits. A sampler, batches of "
            "few samples and other programs on this machine are not timed",
        )
    if busiest.bound == "storage":
        return _storage(seen, busiest, waits)
    if busiest.bound == "decode":
        return _pictures(seen, busiest, waits)
    if busiest.bound == "Python":
        return _python(seen, busiest, waits)
    if busiest.bound == "remote workers":
        return _remote_workers(seen, busiest, waits)
    if busiest.bound == "network":
        return _network(seen, busiest, waits)
    stage = busiest.stages[0]
    return Verdict(
        "copy",
        f"copy-bound: {waits}, {stage.name} ({stage.where}) takes {_percent(busiest.busy)}",
        _copy_advice(seen, busiest),
    )


_NOTHING = "next to nothing to win from the loader: make the training step faster"


def _step(seen: Observation, share: float, waits: str) -> Verdict:
    """Judges a loop that hardly waits, or would be no faster if it did not."""
    bound = "GPU" if seen.on_accelerator else "training step"
    win = seen.to_win
    if share >= WAITS and win is not None:
        text = f"{waits}, and would be {win_words(win)} faster if data were free"
        return Verdict(bound, f"{bound}-bound: {text}", _NOTHING)
    if win is None or win < WAITS:
        text = f"{bound}-bound: {waits}, the {bound} takes the rest"
        return Verdict(bound, text, _NOTHING)
    text = f"{bound}-bound: {waits}, but its steps are slower beside the loader than alone"
    if seen.on_accelerator:
        advice = "take a loader.trace(path): it shows what runs beside the step and holds it up"
    else:
        advice = "leave more processors to the step, which shares them: lower num_workers"
    return Verdict(bound, text, advice)


def win_words(win: float) -> str:
    """Says how much faster a loop would be."""
    return "more than ten times the speed" if win > 10 else f"{100 * win:.0f} %"


def _resources(stages: Sequence[Stage], seconds: float) -> list[_Resource]:
    groups: dict[tuple[Bound, str], list[Stage]] = {}
    for stage in stages:
        if stage.bound is not None:
            groups.setdefault((stage.bound, stage.where), []).append(stage)
    made = []
    for (bound, _), each in groups.items():
        busy = sum(stage.seconds for stage in each) / (max(1, each[0].threads) * seconds)
        made.append(_Resource(busy, bound, tuple(each)))
    return made


_NEARER = "bring the data nearer: a faster disk or network, or fewer bytes for a sample"
_ALL = 0.9  # of the time: who is at work so long has no more to give


def _storage(seen: Observation, readers: _Resource, waits: str) -> Verdict:
    stage, busy = readers.stages[0], _percent(readers.busy)
    if seen.figures.packed:
        what = f"finding records in the packed file takes {busy} of the loop's"
        return Verdict("storage", f"storage-bound: {waits}, {what}", _storage_advice(seen))
    return Verdict(
        "storage",
        f"storage-bound: {waits}, {stage.name} ({stage.where}) takes {busy}",
        _NEARER,
    )


def _remote_workers(seen: Observation, actors: _Resource, waits: str) -> Verdict:
    where, count = actors.stages[0].where, actors.threads
    return Verdict(
        "remote workers",
        f"remote workers-bound: {waits}, the {where} ({count}) are busy {_percent(actors.busy)} of "
        "theirs",
        f"raise num_workers from {seen.workers}, on as many processors of the cluster, or give each "
        "actor more of them: ray_options={'num_cpus': ...}",
    )


def _network(seen: Observation, link: _Resource, waits: str) -> Verdict:
    text = f"network-bound: {waits}, batches are on their way {_percent(link.busy)} of it"
    if seen.normalizes:
        advice = "move fewer bytes: smaller pictures, or fewer tensors in a batch"
    else:
        advice = (
            "let the dataset return uint8 pictures and give mean and std here: a quarter of the bytes "
            "to move"
        )
    return Verdict("network", text, f"{advice}; docs/ray.md says how many pictures a link carries")


def _python(seen: Observation, makers: _Resource, waits: str) -> Verdict:
    if seen.workers:
        where = f"{makers.stages[0].where} ({makers.threads})"
        at_work = f"its {where} are busy {_percent(makers.busy)} of theirs"
    else:
        at_work = f"{_percent(makers.busy)} of it runs the dataset's own code and collate_fn"
    collated = sum(stage.seconds for stage in makers.stages if stage.name == "collate")
    if collated > makers.seconds / 2:
        at_work += ", most of it in collate_fn"
    return Verdict("Python", f"Python-bound: {waits}, {at_work}", _python_advice(seen, makers))


def _pictures(seen: Observation, threads: _Resource, waits: str) -> Verdict:
    by_name = {stage.name: stage.seconds for stage in threads.stages}
    read = by_name.get("read", 0.0) / threads.seconds
    if read > 0.5:
        return Verdict(
            "storage",
            f"storage-bound: {waits}, reading takes {_percent(read)} of the threads' time",
            _storage_advice(seen),
        )
    largest = max(threads.stages, key=lambda stage: stage.seconds).name
    share = _percent(1 - read)
    text = f"decode-bound: {waits}, decoding and what follows take {share} of the threads' time"
    if largest != "decode":
        text += f", most of it {largest}"
    processors = own_threads()
    # The threads of encoded pictures are of another number than num_workers, which counts workers.
    encoded = seen.figures.threads is None
    if encoded and not seen.workers and threads.busy < _ALL:
        return Verdict(
            "decode",
            text,
            "set num_workers=1: without workers a batch is decoded only while the loop waits for it",
        )
    if threads.threads < processors and seen.fixed_workers and not encoded:
        wanted = _threads_needed(threads, seen, processors)
        idle = processors - threads.threads
        which = "1 processor has" if idle == 1 else f"{idle} processors have"
        return Verdict(
            "decode",
            text,
            f"raise num_workers from {threads.threads} to {wanted}: {which} no decode thread",
        )
    already = ""
    if threads.threads >= processors:
        whose = "" if ranks_here() == 1 else " of this rank"
        already = f" (all {processors} processors{whose} decode already)"
    if largest == "recipe":
        advice = f"leave out what is dear of the recipe, or do it on smaller pictures{already}"
    elif seen.figures.packed:
        advice = f'pack smaller pictures (--max-side PIXELS), or try decode="fast"{already}'
    elif encoded:
        advice = f'make the files smaller, once, or try decode="fast"{already}'
    else:
        advice = (
            f"make the pictures smaller, once: fastloader pack SRC DST --max-side PIXELS{already}"
        )
    return Verdict("decode", text, advice)


def _storage_advice(seen: Observation) -> str:
    if seen.figures.packed:
        return (
            "put the packed file on a faster disk, or make its pictures smaller: fastloader pack SRC "
            "DST --max-side PIXELS"
        )
    if seen.figures.threads is None:  # a dataset of the user's own, which nothing packs as it is
        return _NEARER
    return (
        "pack the folder into one file on a fast disk: fastloader pack SRC DST, then "
        "fastloader.datasets.LMDBDataset(DST)"
    )


def _python_advice(seen: Observation, workers: _Resource | None) -> str:
    processors = own_threads()
    if not seen.workers:
        return (
            f"set num_workers={max(1, processors - 1)}: the dataset runs on the loop's own thread"
        )
    if seen.workers < processors and seen.fixed_workers:
        wanted = processors if workers is None else _threads_needed(workers, seen, processors)
        return f"raise num_workers from {seen.workers} to {wanted}"
    if seen.worker_backend == "thread":
        return "try worker_backend='process': Python threads share one interpreter lock"
    why = seen.describe().rpartition("; batches are ")[0]
    return (
        "make the dataset's code and collate_fn faster: every processor has a worker. Or let the native "
        f"path do their work, which it does not now ({why}); docs/native.md says what it takes"
    )


def _copy_advice(seen: Observation, resource: _Resource) -> str:
    gathers = resource.bound == "gather" and seen.fixed_workers
    if gathers and seen.workers < own_threads():
        return f"raise num_workers from {seen.workers} to {own_threads()}: threads gather"
    ring = seen.figures.ring
    if seen.on_accelerator and ring and not ring["pinned"]:
        return f"let the ring be pinned (ulimit -l): {ring['why_not_pinned']}"
    if resource.stages[0].name == "normalise":
        return "let decode threads normalise: docs/native.md says what they can. Or make it fewer pixels"
    if not seen.normalizes and resource.bound != "gather":
        return (
            "let the dataset return uint8 pictures and give mean and std here: a quarter of the "
            "bytes to move"
        )
    return "move fewer bytes: smaller pictures, or fewer tensors in a batch"


def _threads_needed(resource: _Resource, seen: Observation, processors: int) -> int:
    """Returns how many threads would keep up with the training step, at most one for each processor."""
    step = seen.statistics.step_s
    enough = math.ceil(resource.seconds / step) if step > 0 else processors
    return min(processors, max(resource.threads + 1, enough))


def _from_python(stages: Sequence[Stage]) -> bool:
    others = ("decode", "gather", "remote workers", "network")
    return not any(stage.bound in others for stage in stages)


def _percent(share: float) -> str:
    # Threads that were added count for the time before, too.
    return f"{100 * min(share, 1.0):.0f} %"


# ---- ``loader.report()``: where the time of a training loop went, and what to do about it.


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of what bounded the loop since the loader was made. ``print`` it for a table that ends
    in the verdict.

    ``bound`` is "storage", "decode", "copy", "Python", "remote workers", "network", "GPU", "training
    step" or "unknown". ``verdict`` and ``advice`` say the same in words. Each of the ``stages`` has
    ``name``, ``seconds`` of thread time, ``count`` of pictures or batches (``unit``), ``each_ms``,
    ``threads`` and ``where``.

    ``wait_share`` is the part of the loop's time that it waited for data; None before it was measured.
    It leaves out the first wait of each epoch and the wait at its end, which are in ``edge_wait_s``.
    ``ready`` is how many batches, of ``depth``, were ready in the mean when the loop asked for one;
    None if nothing runs ahead. ``threads`` counts the threads or processes that make batches. ``bytes``
    were read of encoded pictures, and ``copied_bytes`` were copied through the ring. ``steps_per_s`` is
    the speed of the loop with this loader, and ``headspace_steps_per_s`` its speed if data were free;
    None unless ``loader.headspace()`` has measured five steps. ``auto`` says what was ``chosen`` and
    ``why``, for ``num_workers`` and ``depth`` if they are "auto". ``recent`` has the last 1000 batches
    one by one, each with ``wait_s``, ``step_s`` and whether it was the ``first`` of its epoch. ``parts``
    has the lines of ``loader.plan()`` that say where each part of a sample is made.

    A notebook shows a report as a page, and `html` writes the page into a file."""

    verdict: str
    advice: str
    bound: str
    stages: dict[str, Stage]
    path: str
    device: str | None
    batches: int
    errors: int
    bad_samples: int
    threads: int
    depth: int | None
    ready: float | None
    wait_s: float
    edge_wait_s: float
    step_s: float
    wait_share: float | None
    bytes: int
    copied_bytes: int
    steps_per_s: float | None
    headspace_steps_per_s: float | None
    auto: dict[str, AutoChoice]
    recent: tuple[Step, ...] = dataclasses.field(default=(), repr=False)
    parts: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain numbers, strings and dicts, without ``recent``."""
        flat = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        del flat["recent"]
        flat["stages"] = {name: stage.as_dict() for name, stage in self.stages.items()}
        flat["parts"] = list(self.parts)
        flat["auto"] = {name: choice.as_dict() for name, choice in self.auto.items()}
        return flat

    @property
    def to_win(self) -> float | None:
        """How much faster the loop would be if data were free: 0.25 is a quarter more steps per second.
        None unless ``loader.headspace()`` has measured five steps."""
        if self.steps_per_s is None or self.headspace_steps_per_s is None:
            return None
        return max(0.0, self.headspace_steps_per_s / self.steps_per_s - 1)

    def html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report to ``path`` as one HTML file that needs no other: the verdict, what to do,
        the stages as bars, and the waits of the last 1000 steps as a chart.

        Raises FileNotFoundError for a path in no folder.
        """
        file = Path(path)
        if not file.absolute().parent.is_dir():
            raise FileNotFoundError(f"{file}: there is no such folder to write a report to")
        file.write_text(self._page().document(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self._page().fragment()

    def _page(self) -> ReportPage:
        return ReportPage(
            verdict=self.verdict,
            advice=self.advice,
            summary=self._summary(),
            tiles=self._tiles(),
            stages=tuple(self.stages.values()),
            seconds=self.wait_s + self.step_s,
            steps=self.recent,
            batches=self.batches,
            facts=self._facts(),
            parts=self.parts,
        )

    def _tiles(self) -> list[tuple[str, str]]:
        tiles = []
        if self.wait_share is not None:
            tiles.append((f"{100 * self.wait_share:.0f} %", "of the loop's time is waiting"))
        if self.steps_per_s is not None:
            tiles.append((f"{self.steps_per_s:.1f}", "steps per second"))
        if self.ready is not None:
            of = "" if self.depth is None else f" of {self.depth}"
            tiles.append((f"{self.ready:.1f}{of}", "batches ready when asked for"))
        if self.to_win is not None:
            tiles.append((win_words(self.to_win), "to win if data were free"))
        return tiles

    def _summary(self) -> str:
        where = "" if self.device is None else f" to {self.device}"
        workers = "no workers"
        if self.threads:
            workers = (
                "1 thread or worker" if self.threads == 1 else f"{self.threads} threads or workers"
            )
        return (
            f"{self.batches} batches, path {self.path!r}{where}, {workers}, "
            f"{self.errors} errors, {self.bad_samples} bad samples"
        )

    def _facts(self) -> list[str]:
        """Lists what else is known, each fact in a line."""
        lines = []
        if self.wait_share is not None:
            lines.append(
                f"the loop: {self.step_s:.3f} s in its steps, {self.wait_s - self.edge_wait_s:.3f} s "
                f"waiting ({100 * self.wait_share:.0f} %), and {self.edge_wait_s:.3f} s at "
                "beginnings and ends of epochs"
            )
        if self.ready is not None:
            of = "" if self.depth is None else f" of {self.depth}"
            lines.append(f"ready when asked for: {self.ready:.1f}{of} batches in the mean")
        moved = []
        if self.bytes:
            moved.append(f"read {self.bytes / 1e6:.1f} MB of pictures")
        if self.copied_bytes:
            moved.append(f"copied {self.copied_bytes / 1e6:.1f} MB through the ring")
        if moved:
            lines.append(", ".join(moved))
        for name, choice in self.auto.items():
            chosen = "nothing" if choice.chosen is None else choice.chosen
            lines.append(f'{name}="auto": {chosen}, {choice.why}')
        if self.headspace_steps_per_s is not None:
            lines.append(_headspace(self))
        return lines

    def __str__(self) -> str:
        width = max([10, *map(len, self.stages)])
        lines = [
            self._summary(),
            "",
            f"  {'stage':<{width}} {'seconds':>9} {'ms each':>9}  per      by",
        ]
        for stage in self.stages.values():
            lines.append(
                f"  {stage.name:<{width}} {stage.seconds:>9.3f} {stage.each_ms:>9.3f}  "
                f"{stage.unit:<8} {stage.by}"
            )
        if self.parts:
            lines += ["", "the parts of a sample:", *(f"  {part}" for part in self.parts)]
        lines += ["", *self._facts()]
        lines.append(f"{self.verdict}. {self.advice[:1].upper()}{self.advice[1:]}.")
        return "\n".join(lines)


def _headspace(report: Report) -> str:
    alone = f"training step alone: {report.headspace_steps_per_s:.1f} steps/s"
    if report.to_win is None:
        return f"{alone}; with this loader: not measured yet"
    return (
        f"{alone}; with this loader {report.steps_per_s:.1f} steps/s; "
        f"{win_words(report.to_win)} to win"
    )


def make_report(seen: Observation) -> Report:
    statistics, figures = seen.statistics, seen.figures
    verdict = judge(seen)
    asked, found, ring = statistics.asked, statistics.found, figures.ring
    if ring:
        asked, found = ring["asked"], ring["found"]
    return Report(
        verdict=verdict.text,
        advice=verdict.advice,
        bound=verdict.bound,
        stages={stage.name: stage for stage in figures.stages},
        path=seen.path,
        device=None if seen.device is None else str(seen.device),
        batches=statistics.batches,
        errors=statistics.errors,
        bad_samples=figures.bad_samples,
        threads=seen.workers if figures.threads is None else figures.threads,
        depth=seen.depth,
        ready=found / asked if seen.ahead and asked else None,
        wait_s=statistics.wait_s,
        edge_wait_s=statistics.edge_wait_s,
        step_s=statistics.step_s,
        wait_share=seen.wait_share,
        bytes=figures.bytes_read,
        copied_bytes=int(ring["bytes"]) if ring else 0,
        steps_per_s=seen.steps_per_s,
        headspace_steps_per_s=seen.free_steps_per_s,
        auto=dict(seen.auto),
        recent=statistics.recent.steps(),
        parts=tuple(part.strip() for part in seen.parts()),
    )
