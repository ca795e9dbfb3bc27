"""What ``num_workers="auto"`` and ``depth="auto"`` have come to, in words."""

from __future__ import annotations

from fastloader._core.observation.figures import AutoChoice
from fastloader._core.observation.tuning.depth import DepthRule
from fastloader._core.order.loader import AutoWorkers
from fastloader._core.sources.arrays.source import ArraySource
from fastloader._core.sources.images.source import ImageSource


def workers_choice(
    workers: AutoWorkers, begun: bool, images: ImageSource, arrays: ArraySource
) -> AutoChoice:
    """``begun``: whether there was an epoch."""
    number, why = int(workers), "one for each processor of this process"
    if not begun:
        return AutoChoice(number, f"{why}: nothing was iterated yet")
    tuner = images.tuner(workers)
    if images.decoder is not None and tuner is not None:
        return AutoChoice(tuner.rule.threads, tuner.rule.why)
    if arrays.last is not None:
        return AutoChoice(arrays.last.threads, f"{why}; threads that gather are not watched")
    return AutoChoice(number, f"{why}; not changed while workers run")


def depth_choice(
    rule: DepthRule, begun: bool, watched: bool, fixed: int | None, workers: int
) -> AutoChoice:
    """``watched``: whether anything follows the rule. If not, the depth is ``fixed``, where there is a
    ring."""
    if not begun:
        return AutoChoice(rule.depth, "to begin with: nothing was iterated yet")
    if watched:
        return AutoChoice(rule.depth, rule.why)
    if workers > 0:
        why = "num_workers and prefetch_factor say how many batches are made ahead"
        return AutoChoice(fixed, why)
    return AutoChoice(fixed, "there are no batches made ahead, whose number would be to choose")
