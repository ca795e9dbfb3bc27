"""The chart of a report: what the loop waited and worked, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastloader._core.observation.recent_steps import Step

_COLUMNS = 100  # at most, so that a column is as wide as a finger's nail on a phone
_HEIGHT = 100


def waits_chart(steps: Sequence[Step], last: int) -> str:
    """HTML with an SVG in it: a column for each batch, or for several in the mean. ``last``: the number
    of the last batch, which is more where the loop also waited for what ended in an error."""
    last = max(last, len(steps))
    each = math.ceil(len(steps) / _COLUMNS)
    groups = [steps[start : start + each] for start in range(0, len(steps), each)]
    columns = [_column(group) for group in groups]
    top = _top([wait + step for wait, step in columns])
    drawn = []
    for number, (group, (wait, step)) in enumerate(zip(groups, columns)):
        begin = last - len(steps) + number * each + 1
        drawn.append(_bar(number, wait, step, top, _named(begin, group, wait, step)))
        for place, one in enumerate(group):
            if one.first:
                x = number + place / each
                drawn.append(
                    f"<g><title>an epoch begins: {_ms(one.wait_s)} until its first batch</title>"
                    f'<line class="e" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{_HEIGHT}"/></g>'
                )
    mean = "" if each == 1 else f" A column is {each} batches in the mean."
    whole = f"batches {last - len(steps) + 1} to {last}"
    return (
        '<div class="chart"><div class="scale dim">'
        f"<span>{_ms(top)}</span><span>{_ms(top / 2)}</span><span>0</span></div>"
        f'<svg viewBox="0 0 {max(len(columns), 20)} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Waits and steps of {whole}">{"".join(drawn)}</svg>'
        f'<div class="under row dim"><span>batch {last - len(steps) + 1}</span><span>{last}</span></div>'
        "</div>"
        '<p class="dim keys"><span><i class="key" style="background:var(--wait)"></i>waiting</span>'
        '<span><i class="key" style="background:var(--step)"></i>step</span></p>'
        f'<p class="dim">{whole.capitalize()}.{mean} A dashed line is the beginning of an epoch, of '
        "which the first wait is left out. A column that reaches the top may be longer.</p>"
    )


def _column(group: Sequence[Step]) -> tuple[float, float]:
    """Mean seconds of waits, without the first of an epoch, and of steps."""
    waits = [one.wait_s for one in group if not one.first]
    steps = [one.step_s for one in group if one.step_s is not None]
    return _mean(waits), _mean(steps)


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0


def _top(heights: Sequence[float]) -> float:
    """The seconds of the whole height: a round number that all but a few columns stay under."""
    ordered = sorted(heights)
    wanted = 1.05 * ordered[min(len(ordered) - 1, int(0.98 * len(ordered)))]
    if wanted <= 0:
        return 1e-3
    unit = 10 ** math.floor(math.log10(wanted))
    return float(
        next(round_ * unit for round_ in (1, 2, 3, 4, 6, 8, 10) if round_ * unit >= wanted)
    )


def _bar(number: int, wait: float, step: float, top: float, title: str) -> str:
    high = min(_HEIGHT, _HEIGHT * (wait + step) / top)
    waited = min(high, _HEIGHT * wait / top)
    return (
        f"<g><title>{title}</title>"
        f'<rect class="s" x="{number}.08" y="{_HEIGHT - high:.2f}" width=".84" height="{high:.2f}"/>'
        f'<rect class="w" x="{number}.08" y="{_HEIGHT - waited:.2f}" width=".84" '
        f'height="{waited:.2f}"/></g>'
    )


def _named(begin: int, group: Sequence[Step], wait: float, step: float) -> str:
    which = f"batch {begin}" if len(group) == 1 else f"batches {begin} to {begin + len(group) - 1}"
    return f"{which}: waited {_ms(wait)}, step {_ms(step)}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
