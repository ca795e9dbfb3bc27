"""``loader.report()``: where the time of a training loop went, and what to do about it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from fastloader._core.observation.figures import AutoChoice, Observation, Stage
from fastloader._core.observation.recent_steps import Step
from fastloader._core.observation.reports.report_page import ReportPage
from fastloader._core.observation.reports.verdict import judge, win_words


@dataclasses.dataclass(frozen=True)
class Report:
    """What bounded the loop since the loader was made. ``print`` it for a table that ends in the
    verdict.

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
    one by one, each with ``wait_s``, ``step_s`` and whether it was the ``first`` of its epoch.

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

    def as_dict(self) -> dict[str, Any]:
        """The report as plain numbers, strings and dicts, without ``recent``."""
        flat = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        del flat["recent"]
        flat["stages"] = {name: stage.as_dict() for name, stage in self.stages.items()}
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
        """What else is known, each in a line."""
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
    )
