"""A report as a page: one HTML file, or a part of a notebook."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape

from fastloader._core.observation.statistics import Stage, Step

# ---- The chart of a report: what the loop waited and worked, batch by batch.


_COLUMNS = 100  # at most, so that a column is as wide as a finger's nail on a phone
_HEIGHT = 100


def waits_chart(steps: Sequence[Step], last: int) -> str:
    """Draws the waits as HTML with an SVG in it: a column for each batch, or for several in the mean.
    ``last``: the number of the last batch, which is more where the loop also waited for what ended in an
    error."""
    last = max(last, len(steps))
    size = math.ceil(len(steps) / _COLUMNS)
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    columns = [_column(group) for group in groups]
    top = _top([wait + step for wait, step in columns])
    drawn = []
    for number, (group, (wait, step)) in enumerate(zip(groups, columns)):
        begin = last - len(steps) + number * size + 1
        drawn.append(_bar(number, wait, step, top, _named(begin, group, wait, step)))
        for place, one in enumerate(group):
            if one.first:
                x = number + place / size
                drawn.append(
                    f"<g><title>an epoch begins: {_ms(one.wait_s)} until its first batch</title>"
                    f'<line class="e" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{_HEIGHT}"/></g>'
                )
    mean = "" if size == 1 else f" A column is {size} batches in the mean."
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
    """Returns the mean seconds of waits, without the first of an epoch, and of steps."""
    waits = [one.wait_s for one in group if not one.first]
    steps = [one.step_s for one in group if one.step_s is not None]
    return _mean(waits), _mean(steps)


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0


def _top(heights: Sequence[float]) -> float:
    """Returns the seconds of the chart's whole height: a round number that all but a few columns stay
    under."""
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


# Every rule begins with the class, so that a notebook's other cells keep their looks. The colours come
# with their background, because a notebook's theme may differ from the browser's.
_STYLE = """
.fastloader-report{--bg:#fff;--card:#f5f6f8;--fg:#191c21;--dim:#59616e;--line:#dde1e7;--wait:#d9480f;
--step:#aab9cd;--bar:#2f6fb7;--track:#e6eaef;color-scheme:light;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
max-width:880px;margin:0 auto;padding:20px 16px 28px;box-sizing:border-box;text-align:left}
@media (prefers-color-scheme:dark){.fastloader-report{--bg:#14161a;--card:#1e2127;--fg:#e9ebee;
--dim:#a0a8b4;--line:#333842;--wait:#ff8f50;--step:#53647d;--bar:#6aa7ea;--track:#2a2f37;
color-scheme:dark}}
.fastloader-report *{box-sizing:border-box;overflow-wrap:anywhere}
.fastloader-report p,.fastloader-report h2{margin:0;padding:0;color:inherit}
.fastloader-report h2{font-size:16px;font-weight:650;margin:28px 0 10px}
.fastloader-report .summary,.fastloader-report .dim{color:var(--dim);font-size:13px}
.fastloader-report .verdict{font-size:20px;line-height:1.35;font-weight:650;margin:6px 0 12px}
.fastloader-report .advice{background:var(--card);border-left:4px solid var(--bar);
border-radius:0 8px 8px 0;padding:10px 14px}
.fastloader-report .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));
gap:10px;margin-top:14px}
.fastloader-report .tile{background:var(--card);border-radius:8px;padding:10px 14px}
.fastloader-report .tile b{display:block;font-size:21px;line-height:1.3}
.fastloader-report .stage{padding:8px 0;border-top:1px solid var(--line)}
.fastloader-report .about{margin-bottom:10px}
.fastloader-report .tile .dim{display:block;line-height:1.35}
.fastloader-report .row{display:flex;justify-content:space-between;gap:0 12px;flex-wrap:wrap}
.fastloader-report .row b{font-weight:600}
.fastloader-report .track{height:10px;border-radius:5px;background:var(--track);margin:5px 0 3px;
overflow:hidden}
.fastloader-report .track i{display:block;height:100%;background:var(--bar)}
.fastloader-report .track i.wait{background:var(--wait)}
.fastloader-report .chart{display:grid;grid-template-columns:auto 1fr;column-gap:8px}
.fastloader-report .scale{display:flex;flex-direction:column;justify-content:space-between;
text-align:right;height:200px;line-height:1;margin:-6px 0}
.fastloader-report svg{display:block;width:100%;height:188px;border-bottom:1px solid var(--line);
border-top:1px dashed var(--line)}
.fastloader-report svg .w{fill:var(--wait)}
.fastloader-report svg .s{fill:var(--step)}
.fastloader-report svg .e{stroke:var(--dim);stroke-dasharray:4 4;vector-effect:non-scaling-stroke}
.fastloader-report .under{grid-column:2;margin-top:4px}
.fastloader-report .key{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
.fastloader-report .keys span{margin-right:16px;white-space:nowrap}
.fastloader-report ul{margin:0;padding-left:20px}
.fastloader-report li{margin:3px 0}
"""


@dataclasses.dataclass(frozen=True)
class ReportPage:
    """The content of the page, the most important first. ``tiles``: figures with what each is.
    ``seconds``: how long the loop was at its steps and waits, of which a stage's bar is a share.
    ``batches``: the number of the last of ``steps``. ``facts``: further lines. ``parts``: a line for
    each part of a sample."""

    verdict: str
    advice: str
    summary: str
    tiles: Sequence[tuple[str, str]]
    stages: Sequence[Stage]
    seconds: float
    steps: Sequence[Step]
    batches: int
    facts: Sequence[str]
    parts: Sequence[str] = ()

    def document(self) -> str:
        """Writes the whole file."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>fastloader: {escape(self.verdict)}</title>"
            "<style>body{margin:0;background:#fff}"
            "@media (prefers-color-scheme:dark){body{background:#14161a}}</style></head>\n"
            f"<body>{self.fragment()}</body></html>\n"
        )

    def fragment(self) -> str:
        """Writes the page's content with its styles, which affect nothing else."""
        tiles = "".join(
            f'<div class="tile"><b>{escape(figure)}</b>'
            f'<span class="dim">{escape(what)}</span></div>'
            for figure, what in self.tiles
        )
        parts = [
            f"<style>{_STYLE}</style>",
            f'<p class="summary">fastloader report: {escape(self.summary)}</p>',
            f'<p class="verdict">{escape(_sentence(self.verdict))}</p>',
            f'<p class="advice">{escape(_sentence(self.advice))}</p>',
        ]
        if tiles:
            parts.append(f'<div class="tiles">{tiles}</div>')
        if self.stages:
            parts.append(
                "<h2>Stages</h2>"
                '<p class="dim about">A bar is the share of the loop\'s time that the threads named '
                "below it were at work in the stage. The shares of the same threads add up, and threads "
                "that come to 100 % hold up the loop. Waits count with the first of each epoch.</p>"
            )
            parts += map(self._stage, self.stages)
        if self.steps:
            parts.append(f"<h2>Waiting per step</h2>{waits_chart(self.steps, self.batches)}")
        for head, lines in (("Parts of a sample", self.parts), ("More figures", self.facts)):
            if lines:
                items = "".join(f"<li>{escape(line)}</li>" for line in lines)
                parts.append(f"<h2>{head}</h2><ul>{items}</ul>")
        return f'<div class="fastloader-report">{"".join(parts)}</div>'

    def _stage(self, stage: Stage) -> str:
        share = 0.0
        if self.seconds > 0:
            share = min(1.0, stage.seconds / (max(1, stage.threads) * self.seconds))
        kind = ' class="wait"' if stage.name == "wait" else ""
        return (
            f'<div class="stage"><div class="row"><b>{escape(stage.name)}</b>'
            f"<span>{100 * share:.0f} %</span></div>"
            f'<div class="track"><i{kind} style="width:{100 * share:.1f}%"></i></div>'
            f'<div class="row dim"><span>{escape(stage.by)}</span>'
            f"<span>{stage.seconds:.3f} s, {stage.each_ms:.3f} ms per {escape(stage.unit)}</span>"
            "</div></div>"
        )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
