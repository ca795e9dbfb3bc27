"""``fastloader bench --recipe``: FastLoader and a plain DataLoader over real training recipes.

The peer is a DataLoader over torchvision's or timm's own dataset, or a user's, and their own transforms
on Pillow's pictures.
Each contender has a process of its own, which lives over the rounds of its recipe; they take turns, and
ratios are taken round by round. One recipe follows the other. comparison.py makes ratios of what is
measured, tables.py and plot.py show it.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

from fastloader._core.machine.limits import available_threads
from fastloader.cli.bench import measure, suite
from fastloader.cli.bench.recipes import Recipe, comparison, named, tables
from fastloader.cli.bench.scenarios import Settings


def run(options: suite.Options, names: list[str]) -> int:
    """Measures, writes everything to ``options.out``, prints the tables. Returns the exit status."""
    from fastloader.cli.bench.recipes import plot

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fastloader-bench-") as work:
        found = suite.photographs(options.data or suite.made(Path(work, "made"), options.pictures))
        epoch = Path(work, "epoch")
        distinct = suite.link(found, epoch, options.pictures)
        settings = Settings(str(epoch), work, options.threads[-1], options.batch_size)
        recipes = {
            name: measured(recipe, options, dataclasses.replace(settings, recipe=name))
            for name, recipe in named(names).items()
        }
    results = {
        "machine": measure.machine(),
        "settings": suite.settings_of(options, distinct, settings.threads, load),
        "busy": load > available_threads() / 2,
        "recipes": recipes,
    }
    written = measure.write("recipes", results, options.out)
    table = tables.markdown(results)
    written.with_suffix(".md").write_text(table + "\n")
    drawn = plot.draw(results, options.out)
    print(table, *(f"written: {path}" for path in (written, *drawn)), sep="\n\n")
    return 1 if any(each["failed"] for each in recipes.values()) else 0


def measured(recipe: Recipe, options: suite.Options, settings: Settings) -> dict[str, Any]:
    suite.progress(f"recipe {settings.recipe}")
    group = suite.measured(comparison.scenarios(recipe), options, settings)
    return {
        **dataclasses.asdict(recipe),
        "ratios": comparison.compared(recipe, group.contenders),
        "contenders": {
            name: {**suite.described(each), "plan": each.plan}
            for name, each in group.contenders.items()
        },
        "skipped": group.skipped,
        "failed": group.failed,
    }
