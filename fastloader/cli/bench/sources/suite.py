"""``fastloader bench --source``: the same photographs as a folder, a list, an LMDB file, tar shards, a
Hugging Face data set, a Parquet file and a MongoDB collection, through FastLoader and through the
loaders that people read them with.

Each contender has a process of its own, which makes the copy that it reads if no other has. They take
turns, and ratios are taken round by round. A MongoDB server runs on one processor, and what asks it on
another. comparison.py makes ratios of what is measured, tables.py and plot.py show it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

from fastloader._core.machine.limits import available_threads
from fastloader.cli.bench import measure, suite
from fastloader.cli.bench.scenarios import Settings
from fastloader.cli.bench.sources import ROUNDS, THREADS, comparison, named, tables
from fastloader.cli.bench.sources.collection import Collection, NoServer, filled


def run(options: suite.Options, names: list[str]) -> int:
    """Measures, writes everything to ``options.out``, prints the tables. Returns the exit status."""
    from fastloader.cli.bench.sources import plot

    load = os.getloadavg()[0]
    sources = named(names)
    with tempfile.TemporaryDirectory(prefix="fastloader-bench-") as work:
        found = suite.photographs(options.data or suite.made(Path(work, "made"), options.pictures))
        epoch = Path(work, "epoch")
        distinct = suite.link(found, epoch, options.pictures)
        settings = Settings(str(epoch), work, options.threads[-1], options.batch_size)
        wanted = comparison.scenarios(sources)
        collection: Collection | None = None
        skipped: dict[str, str] = {}
        failed: dict[str, str] = {}
        with contextlib.ExitStack() as held:
            asking = [name for name in wanted if name in comparison.FROM_A_SERVER]
            if asking:
                suite.progress("photographs into MongoDB")
                try:
                    collection = held.enter_context(filled(str(epoch), work))
                    settings = dataclasses.replace(settings, **collection.settings)
                    if collection.why_not_bare:
                        skipped[comparison.BARE] = collection.why_not_bare
                except NoServer as reason:
                    skipped = dict.fromkeys(asking, str(reason))
                except RuntimeError as reason:
                    failed = dict.fromkeys(asking, str(reason))
            left = {name: each for name, each in wanted.items() if name not in skipped | failed}
            group = suite.measured(left, options, settings)
    judged = settings.threads == THREADS and options.repeats >= ROUNDS
    results = {
        "machine": measure.machine(),
        "settings": {
            **suite.settings_of(options, distinct, settings.threads, load),
            "mongodb": None if collection is None else collection.described,
        },
        "busy": load > available_threads() / 2,
        "judged": judged,
        "sources": {name: each.label for name, each in sources.items()},
        "ratios": comparison.compared(sources, group.contenders, judged),
        "contenders": {
            name: {**suite.described(each), "plan": each.plan}
            for name, each in group.contenders.items()
        },
        "skipped": group.skipped | skipped,
        "failed": group.failed | failed,
    }
    return written(results, options.out, plot)


def written(results: dict[str, Any], out: Path, plot: Any) -> int:
    path = measure.write("sources", results, out)
    table = tables.markdown(results)
    path.with_suffix(".md").write_text(table + "\n")
    drawn = plot.draw(results, out)
    print(table, *(f"written: {each}" for each in (path, *drawn)), sep="\n\n")
    return 1 if results["failed"] else 0
