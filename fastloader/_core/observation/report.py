"""``loader.report()``: where the time of a training loop went, and what to do about it."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastloader._core.observation.figures import Stage, find_stages
from fastloader._core.observation.verdict import judge


@dataclasses.dataclass(frozen=True)
class Choice:
    """What "auto" has come to, and why."""

    chosen: int | None  # None: there is nothing to choose
    why: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Report:
    """Since the loader was made. ``print`` it for a table that ends in the verdict.

    ``bound``: "storage", "decode", "copy", "Python", "GPU", "training step" or "unknown"; ``verdict``
    and ``advice``: the same in words. ``stages``: each has ``name``, ``seconds`` of thread time,
    ``count`` of pictures or batches (``unit``), ``each_ms``, ``threads``, ``where``.
    ``wait_share``: the part of the loop's time that it waited for data, None before it was
    measured; the first wait of each epoch (``edge_wait_s``) and that at its end are left out of it.
    ``ready``: batches that lay ready when the loop came for one, in the mean, of ``depth``; None
    where nothing runs ahead. ``threads``: that make batches, processes too. ``bytes``: encoded
    pictures read, and ``copied_bytes`` through the ring. ``steps_per_s``: of the loop with this
    loader; ``headspace_steps_per_s``: if data were free, None unless ``loader.headspace()`` was
    run. ``auto``: for ``num_workers`` and ``depth``, where they are "auto", what was ``chosen`` and
    ``why``."""

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
    auto: dict[str, Choice]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts."""
        flat = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        flat["stages"] = {name: stage.as_dict() for name, stage in self.stages.items()}
        flat["auto"] = {name: choice.as_dict() for name, choice in self.auto.items()}
        return flat

    @property
    def to_win(self) -> float | None:
        """How much faster the loop would be if data were free: 0.25 is a quarter more steps per second.
        None unless ``loader.headspace()`` was run."""
        if self.steps_per_s is None or self.headspace_steps_per_s is None:
            return None
        return max(0.0, self.headspace_steps_per_s / self.steps_per_s - 1)

    def __str__(self) -> str:
        where = "" if self.device is None else f" to {self.device}"
        workers = f"{self.threads} threads or workers" if self.threads else "no workers"
        lines = [
            f"{self.batches} batches, path {self.path!r}{where}, {workers}, "
            f"{self.errors} errors, {self.bad_samples} bad samples",
            "",
            f"  {'stage':<10} {'seconds':>9} {'ms each':>9}  per      by",
        ]
        for stage in self.stages.values():
            by = stage.where if stage.threads <= 1 else f"{stage.threads} {stage.where}"
            lines.append(
                f"  {stage.name:<10} {stage.seconds:>9.3f} {stage.each_ms:>9.3f}  {stage.unit:<8} {by}"
            )
        lines.append("")
        if self.wait_share is not None:
            lines.append(
                f"the loop: {self.step_s:.3f} s in its steps, {self.wait_s - self.edge_wait_s:.3f} s "
                f"waiting ({100 * self.wait_share:.0f} %), and {self.edge_wait_s:.3f} s at "
                "beginnings and ends of epochs"
            )
        if self.ready is not None:
            of = "" if self.depth is None else f" of {self.depth}"
            lines.append(f"ready when asked for: {self.ready:.1f}{of} batches in the mean")
        if self.bytes or self.copied_bytes:
            lines.append(
                f"read {self.bytes / 1e6:.1f} MB of pictures, copied {self.copied_bytes / 1e6:.1f} MB "
                "through the ring"
            )
        for name, choice in self.auto.items():
            chosen = "nothing" if choice.chosen is None else choice.chosen
            lines.append(f'{name}="auto": {chosen}, {choice.why}')
        if self.headspace_steps_per_s is not None:
            lines.append(_headspace(self))
        lines.append(f"{self.verdict}. {self.advice[:1].upper()}{self.advice[1:]}.")
        return "\n".join(lines)


def _headspace(report: Report) -> str:
    alone = f"training step alone: {report.headspace_steps_per_s:.1f} steps/s"
    if report.to_win is None:
        return f"{alone}; with this loader: not measured yet"
    return (
        f"{alone}; with this loader {report.steps_per_s:.1f} steps/s; "
        f"{100 * report.to_win:.0f} % to win"
    )


def find_choices(loader: Any) -> dict[str, Choice]:
    """By the name of the argument that was "auto"."""
    choices = {}
    runtime, delivery = loader._runtime, loader._runtime.delivery
    begun = runtime.begun
    if runtime.tuner is not None:
        rule = runtime.tuner.rule
        number, why = loader.num_workers, "one for each processor of this process"
        if not begun:
            why += ": nothing was iterated yet"
        elif runtime.source is not None:
            number, why = rule.threads, rule.why
        elif runtime.arrays is not None:
            number, why = runtime.arrays.threads, f"{why}; threads that gather are not watched"
        else:
            why += "; not changed while workers run"
        choices["num_workers"] = Choice(number, why)
    if delivery.depth_rule is not None:
        depth, why = delivery.depth_rule.depth, delivery.depth_rule.why
        if not begun:
            why = "to begin with: nothing was iterated yet"
        elif not delivery.watches_depth and runtime.source is None:
            depth = delivery.ring_stats().get("depth")
            why = "there are no batches made ahead, whose number would be to choose"
            if loader.num_workers > 0:
                why = "num_workers and prefetch_factor say how many batches are made ahead"
        choices["depth"] = Choice(depth, why)
    return choices


def make_report(loader: Any) -> Report:
    delivery, statistics = loader._runtime.delivery, loader._runtime.delivery.statistics
    stages = find_stages(loader)
    ring = delivery.ring_stats()
    waited = statistics.wait_s - statistics.edge_wait_s
    looped = waited + statistics.step_s
    share = waited / looped if looped > 0 and statistics.batches > 1 else None
    verdict = judge(loader, stages, share, looped + statistics.edge_wait_s)
    asked, found, depth = statistics.asked, statistics.found, None
    threads, source = loader.num_workers, loader._runtime.source
    if ring:
        depth = ring["depth"]
        asked, found = ring["asked"], ring["found"]
    elif loader._runtime.images is not None:
        depth = loader._runtime.images.ahead
    elif loader.num_workers:
        depth = loader.num_workers * (loader.prefetch_factor or 2)
    if source is not None:
        threads = source.quota.threads
    elif loader._runtime.arrays is not None:
        threads = loader._runtime.arrays.threads
    ahead = loader.num_workers > 0 or source is not None
    headspace = loader._runtime.headspace
    return Report(
        verdict=verdict.text,
        advice=verdict.advice,
        bound=verdict.bound,
        stages={stage.name: stage for stage in stages},
        path=delivery.path,
        device=None if delivery.device is None else str(delivery.device),
        batches=statistics.batches,
        errors=statistics.errors,
        bad_samples=loader._runtime.policy.bad,
        threads=threads,
        depth=depth,
        ready=found / asked if ahead and asked else None,
        wait_s=statistics.wait_s,
        edge_wait_s=statistics.edge_wait_s,
        step_s=statistics.step_s,
        wait_share=share,
        bytes=0 if source is None else int(source.times().get("bytes", 0)),
        copied_bytes=int(ring["bytes"]) if ring else 0,
        steps_per_s=statistics.steps / looped if looped > 0 and statistics.steps else None,
        headspace_steps_per_s=None if headspace is None else headspace.steps_per_s,
        auto=find_choices(loader),
    )
