"""What ``num_workers="auto"`` and ``depth="auto"`` have come to, in words."""

from __future__ import annotations

from fastloader._core.observation.statistics import PER_PROCESSOR, AutoChoice
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.order.loader import AutoWorkers


def workers_choice(workers: AutoWorkers, begun: bool, made: AutoChoice | None) -> AutoChoice:
    """``begun``: whether there was an epoch. ``made``: the choice of the source, if it makes one."""
    if not begun:
        return AutoChoice(int(workers), f"{PER_PROCESSOR}: nothing was iterated yet")
    return made or AutoChoice(int(workers), f"{PER_PROCESSOR}; not changed while workers run")


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
