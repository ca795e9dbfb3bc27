"""The runner: JPEGs through every loader that is installed (``crops.py``), training recipes through
FastLoader and a plain DataLoader (``recipes.py``), or the same photographs in different places
(``places.py``).

Every scenario (scenarios/) has a process of its own, which stays alive over the rounds with its
worker processes; one runs at a time, the order turns round from round to round, and ratios are taken
round by round. What is not installed is skipped, and the reason stands in the results. Peers whose
packages exclude each other, such as Pillow and Pillow-SIMD, run with the interpreter of another
environment. With a device, the loaders deliver into its memory, and an epoch ends when the device has
the last batch. comparison.py makes ratios of what is measured, tables.py and plots.py show it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks import measure
from benchmarks.peers import comparison, crops, places, recipes, tables
from benchmarks.peers.collection import Collection, NoServer, filled
from benchmarks.peers.contender import Contender, Failed, Skipped
from benchmarks.peers.scenarios import Scenario, Settings, named, with_threads
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import duration
from fastloader.cli import pictures

Json = dict[str, Any]

MOST_MADE = 500  # pictures, where no folder is named
LIMIT = "bare-decode"  # what the loaders are shown against


class NoPictures(Exception):
    """The folder holds nothing that every peer can read; the message says which folder."""


@dataclasses.dataclass(frozen=True)
class Options:
    """As the command line has them; ``threads`` in ascending order. The comparison runs with the
    last of them, the others are for the scaling."""

    data: Path | None
    threads: list[int]
    repeats: int
    batch_size: int
    pictures: int
    out: Path
    only: list[str] = dataclasses.field(default_factory=list)
    python: dict[str, str] = dataclasses.field(default_factory=dict)
    device: str | None = None
    sets: bool = False
    recipes: list[str] = dataclasses.field(default_factory=list)
    places: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Group:
    """Contenders whose rounds are interleaved, and why others are none."""

    contenders: dict[str, Contender] = dataclasses.field(default_factory=dict)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def described(self) -> Json:
        return {name: described(each) for name, each in self.contenders.items()}


def run(options: Options) -> int:
    """Measures, writes everything to ``options.out``, prints the tables. Returns the exit status."""
    from benchmarks.peers import plots  # benchmarks/gpu measures without matplotlib

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fastloader-bench-") as work:
        found = photographs(options.data or made(Path(work, "made"), options.pictures))
        epoch = Path(work, "epoch")
        distinct = link(found, epoch, options.pictures)
        settings = Settings(
            str(epoch), work, options.threads[-1], options.batch_size, options.device
        )
        about: Json = {}  # what else the results say of how they were measured
        if options.recipes:
            name, results = "recipes", measured_recipes(options, settings)
        elif options.places:
            name, (results, about) = "sources", measured_places(options, settings)
        else:
            name, results = "peers", measured_crops(options, settings, found)
            about = {"device": options.device}
    results = {
        "machine": measure.machine(),
        "settings": {**settings_of(options, distinct, load), **about},
        "busy": load > available_threads() / 2,
        **results,
    }
    written = measure.write(name, results, options.out)
    table = tables.markdown(results)
    written.with_suffix(".md").write_text(table + "\n")
    drawn = plots.draw(results, options.out)
    print(table, *(f"written: {path}" for path in (written, *drawn)), sep="\n\n")
    return int(any(each["failed"] for each in comparison.groups_of(results).values()))


def measured_crops(options: Options, settings: Settings, found: list[Path]) -> Json:
    """The loaders over plain crops, with fewer threads, too, and over the pictures written again."""
    main = measured(crops.chosen(options.only, options.device), options, settings)
    main.skipped |= crops.left_out(options.only, options.device)
    others = [measured(scaling(main, count), options, settings) for count in options.threads[:-1]]
    sets = {
        name: measured_set(name, options, settings, chosen_of(found, options.pictures))
        for name in (crops.SETS if options.sets else ())
    }
    return {
        "scenarios": main.described(),
        "ratios": comparison.compared(crops.ROWS, main.contenders),
        "further": comparison.further_rows(main.contenders, settings.threads),
        "breakdown": comparison.breakdown(main.contenders),
        "scaling": speeds_by_threads([main, *others]),
        "sets": sets,
        "skipped": main.skipped,
        "failed": {name: why for group in (main, *others) for name, why in group.failed.items()},
    }


def measured_set(name: str, options: Options, settings: Settings, found: list[Path]) -> Json:
    """The loaders over these pictures, written again."""
    progress(f"set {name}")
    chosen = crops.SETS[name]
    # A folder of its own for what loaders make of the pictures, too.
    work = Path(settings.work, name)
    again = write_again(found, work / "made", chosen.options)
    root = work / "epoch"
    link(again, root, options.pictures)
    group = measured(
        chosen.scenarios(crops.chosen(options.only, options.device)),
        options,
        dataclasses.replace(settings, root=str(root), work=str(work)),
    )
    return {
        "label": chosen.label,
        "bytes_per_picture": sum(path.stat().st_size for path in again) / len(again),
        "ratios": comparison.compared(chosen.rows, group.contenders),
        "scenarios": group.described(),
        "skipped": group.skipped,
        "failed": group.failed,
    }


def measured_recipes(options: Options, settings: Settings) -> Json:
    """Each recipe after the other, and its contenders in turns."""
    found = {}
    for name, recipe in named(recipes.RECIPES, options.recipes).items():
        progress(f"recipe {name}")
        group = measured(
            recipes.scenarios(recipe), options, dataclasses.replace(settings, recipe=name)
        )
        rows = comparison.compared(recipes.rows(recipe, settings.threads), group.contenders)
        found[name] = {
            **dataclasses.asdict(recipe),
            "ratios": comparison.by_name(rows),
            "contenders": group.described(),
            "skipped": group.skipped,
            "failed": group.failed,
        }
    return {"recipes": found}


def measured_places(options: Options, settings: Settings) -> tuple[Json, Json]:
    """All places in turns. A contender makes the copy that it reads if no other has. A MongoDB server
    runs on one processor, and what asks it on another. Returns the results, and what the settings are to
    say of the server."""
    chosen = named(places.SOURCES, options.places)
    wanted = places.scenarios(chosen)
    collection: Collection | None = None
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as held:
        asking = [name for name in wanted if name in places.FROM_A_SERVER]
        if asking:
            progress("photographs into MongoDB")
            try:
                collection = held.enter_context(filled(settings.root, settings.work))
                settings = dataclasses.replace(settings, **collection.settings)
                if collection.why_not_bare:
                    skipped[places.BARE] = collection.why_not_bare
            except NoServer as reason:
                skipped = dict.fromkeys(asking, str(reason))
            except RuntimeError as reason:
                failed = dict.fromkeys(asking, str(reason))
        left = {name: each for name, each in wanted.items() if name not in skipped | failed}
        group = measured(left, options, settings)
    judged = settings.threads == places.THREADS and options.repeats >= places.ROUNDS
    rows = (row for each in chosen.values() for row in each.rows)
    results = {
        "judged": judged,
        "sources": {name: each.label for name, each in chosen.items()},
        "ratios": comparison.by_name(comparison.compared(rows, group.contenders, judged)),
        "contenders": group.described(),
        "skipped": group.skipped | skipped,
        "failed": group.failed | failed,
    }
    return results, {"mongodb": None if collection is None else collection.described}


def made(folder: Path, count: int) -> Path:
    tasks = pictures.missing_pictures(folder, min(count, MOST_MADE), 470, 400, seed=0)
    for _ready in pictures.make_pictures(tasks, available_threads()):
        pass
    return folder


def photographs(folder: Path) -> list[Path]:
    """The JPEGs that every peer can read: a bare decoder makes no RGB of a CMYK one."""
    found = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in (".jpg", ".jpeg"):
            with Image.open(path) as image:
                if image.format == "JPEG" and image.mode in ("RGB", "L"):
                    found.append(path)
    if not found:
        raise NoPictures(f"{folder}: no RGB or grey JPEG in any folder of it")
    return found


def link(found: list[Path], epoch: Path, count: int) -> int:
    """Makes a folder of class folders with ``count`` links to the pictures, and returns how many
    different ones they are."""
    chosen = chosen_of(found, count)
    for number in range(count):
        path = chosen[number % len(chosen)]
        folder = epoch / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number // len(chosen)}_{path.name}").symlink_to(path.resolve())
    return len(chosen)


def chosen_of(found: list[Path], count: int) -> list[Path]:
    """At most ``count`` of these pictures, from all parts of the folder."""
    return found[:: max(1, len(found) // count)][:count]


def scaling(main: Group, count: int) -> dict[str, Scenario]:
    """What else runs with ``count`` threads: the loaders that could be measured, and their limit."""
    return {
        f"{name}@{count}": with_threads(each.scenario, count)
        for name, each in main.contenders.items()
        if each.scenario.threads is None
        and (each.scenario.output or name == LIMIT)
        and f"{name}@{count}" not in main.contenders
    }


def measured(scenarios: dict[str, Scenario], options: Options, settings: Settings) -> Group:
    """The rounds of these scenarios, whose processes live as long as this takes. Who fails is out,
    with all its rounds."""
    group = Group()
    done = 0
    try:
        for name, scenario in scenarios.items():
            progress(f"{name}: first epoch")
            try:
                group.contenders[name] = Contender(
                    name, scenario, settings, options.python.get(scenario.peer)
                )
            except Skipped as reason:
                group.skipped[name] = str(reason)
            except Failed as reason:
                group.failed[name] = str(reason)
        begun = time.monotonic()
        for words, step in (("round", Contender.round), ("new loaders", Contender.begin_anew)):
            for number in range(options.repeats):
                order = list(group.contenders)
                if number % 2:
                    order.reverse()
                for name in order:
                    left = 2 * options.repeats * len(group.contenders) - done
                    seconds = (time.monotonic() - begun) / done * left if done else None
                    progress(f"{words} {number + 1} of {options.repeats}: {name}", seconds)
                    done += 1
                    try:
                        step(group.contenders[name])
                    except Failed as reason:
                        group.failed[name] = str(reason)
                        group.contenders.pop(name).close()
    finally:
        progress("")
        for contender in group.contenders.values():
            contender.close()
    return group


def write_again(found: list[Path], folder: Path, options: Mapping[str, Any]) -> list[Path]:
    """Writes the pictures in another form, in class folders of the same names."""
    made = []
    for number, path in enumerate(found):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        made.append(folder / path.parent.name / f"{number}_{path.stem}.jpg")
        with Image.open(path) as picture:
            picture.convert("RGB").save(made[-1], "JPEG", **options)
    return made


def progress(text: str, seconds_left: float | None = None) -> None:
    """Shows what is measured, on a terminal only, and how long these loaders will take from here on."""
    if sys.stderr.isatty():
        left = "" if seconds_left is None else f", {duration(seconds_left)} left"
        print(f"\r\033[K{text}{left}", end="", file=sys.stderr, flush=True)


def settings_of(options: Options, distinct: int, load: float) -> dict[str, Any]:
    """What results say of how they were measured. ``load``: of the machine, before that began."""
    return {
        "data": options.data.name if options.data else "generated pictures",
        "distinct_pictures": distinct,
        "pictures": options.pictures,
        "batch_size": options.batch_size,
        "threads": options.threads[-1],
        "repeats": options.repeats,
        "load_before": load,
    }


def described(contender: Contender) -> dict[str, Any]:
    scenario = contender.scenario
    return {
        "label": scenario.label,
        "peer": scenario.peer,
        "output": scenario.output,
        "remark": scenario.remark,
        "threads": contender.threads,
        "versions": contender.versions,
        "seconds_per_picture": contender.timing.seconds,
        "pictures_per_s": pictures_per_s(contender),
        "cpu_s_per_picture": contender.cpu.seconds,
        "cold_first_batch_s": contender.cold_first_batch_s,
        "first_batch_s": contender.first_batches,
        "later_batches_s": comparison.quantiles(contender.waits) if contender.waits else None,
        "memory": contender.memory,
        "plan": contender.plan,
    }


def pictures_per_s(contender: Contender) -> dict[str, float]:
    return measure.spread([1 / each for each in contender.timing.seconds])


def speeds_by_threads(groups: Iterable[Group]) -> dict[str, dict[str, dict[str, float]]]:
    """Pictures per second of each loader and of the limit, by the number of threads; only of those
    that ran with more than one number."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for group in groups:
        for name, each in group.contenders.items():
            base = name.partition("@")[0]
            if each.scenario.output or base == LIMIT:
                found.setdefault(base, {})[each.threads] = pictures_per_s(each)
    return {
        name: {str(count): speeds[count] for count in sorted(speeds)}
        for name, speeds in found.items()
        if len(speeds) > 1
    }
