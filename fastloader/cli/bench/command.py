"""``fastloader bench``: the loaders installed on this machine, side by side."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from pathlib import Path
from typing import Any

from fastloader._core.machine.limits import available_threads
from fastloader.cli.bench.recipes import EVERY, RECIPES
from fastloader.cli.bench.scenarios import ON_DEVICE, PEERS, SCENARIOS
from fastloader.cli.bench.sources import ROUNDS, SOURCES, THREADS
from fastloader.cli.tasks import HelpFormat, at_least_one


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
    parser = commands.add_parser(
        "bench",
        help="the loaders installed on this machine, side by side on your pictures",
        description="Runs the same pictures through every loader that is installed, each in a "
        "process of its own, in turns: RandomResizedCrop to 224 and flip. Writes peers.json, "
        "peers.md and plots to --out. What is not installed is listed with the reason. "
        f"Peers: {', '.join(PEERS)}. With --recipe, training recipes run instead, through FastLoader "
        "and a plain DataLoader over the original datasets and transforms; that writes "
        f"recipes.json, recipes.md and recipes.png. Recipes: {', '.join(RECIPES)}. With --source, "
        "FastLoader reads the same pictures from different places, beside the loaders that people read "
        "them with; that writes sources.json, sources.md and sources.png. "
        f"Places: {', '.join(SOURCES)}.",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="a folder of class folders with JPEGs; without it, pictures are made",
    )
    parser.add_argument(
        "--threads",
        type=at_least_one,
        nargs="+",
        default=default_threads(available_threads()),
        metavar="N",
        help="threads or worker processes: the comparison runs with the most, the others show how "
        "the loaders scale",
    )
    parser.add_argument("--repeats", type=at_least_one, default=3, help="rounds")
    parser.add_argument("--batch-size", type=at_least_one, default=64, help="pictures in a batch")
    parser.add_argument(
        "--pictures",
        type=at_least_one,
        default=1000,
        help="in an epoch: each of --data occurs as often as that takes, so that the beginning and "
        "the end of an epoch weigh little",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(dict.fromkeys([*PEERS, *SCENARIOS, *ON_DEVICE])),
        default=[],
        metavar="PEER",
        help="these peers or scenarios and no others",
    )
    parser.add_argument(
        "--recipe",
        nargs="+",
        choices=[*RECIPES, EVERY],
        metavar="NAME",
        help=f"compare over these training recipes, or over {EVERY} of them; needs torchvision, and "
        "timm for its own recipes",
    )
    parser.add_argument(
        "--source",
        nargs="+",
        choices=[*SOURCES, EVERY],
        metavar="NAME",
        help=f"compare the readers of these places, or of {EVERY} of them, with a folder and with "
        "others' readers; needs lmdb, datasets, webdataset, pyarrow, pymongo and nx-27017 for theirs. "
        f"--threads {THREADS} --repeats {ROUNDS} gives steady ratios",
    )
    parser.add_argument(
        "--sets",
        action="store_true",
        help="also compare the loaders over the same pictures written again as 4:4:4 of quality 90, as "
        "4:2:0 of quality 85, and as progressive ones of that: takes three times as long",
    )
    parser.add_argument(
        "--device",
        help="have the loaders deliver into this device's memory, such as cuda, normalised in "
        "bfloat16 and channels_last; peers that cannot are listed with the reason",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        type=_interpreter,
        metavar="PEER=INTERPRETER",
        help="runs that peer with another environment's interpreter",
    )
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="where results go")
    parser.set_defaults(run=run)


def default_threads(available: int) -> list[int]:
    """One, all, and the middle of the two on a logarithmic scale."""
    return sorted({1, round(math.sqrt(available)), available})


def run(arguments: argparse.Namespace) -> int:
    for kind, others in (
        ("recipe", ("only", "device", "python", "sets")),
        ("source", ("recipe", "only", "device", "python", "sets")),
    ):
        for name in others if getattr(arguments, kind) else ():
            if getattr(arguments, name):
                print(f"fastloader bench: --{name} does not go with --{kind}", file=sys.stderr)
                return 1
    missing = _missing()
    if missing:
        print(f"fastloader bench: {missing}", file=sys.stderr)
        return 1
    from fastloader._core.machine import devices
    from fastloader.cli.bench import suite
    from fastloader.cli.bench.recipes import suite as recipes
    from fastloader.cli.bench.sources import suite as sources

    options = suite.Options(
        data=arguments.data,
        threads=sorted(set(arguments.threads)),
        repeats=arguments.repeats,
        batch_size=arguments.batch_size,
        pictures=arguments.pictures,
        only=arguments.only,
        python=dict(arguments.python),
        out=arguments.out,
        device=arguments.device,
        sets=arguments.sets,
    )
    try:
        devices.resolve_device(options.device)
    except (TypeError, ValueError) as error:
        print(f"fastloader bench: {error}", file=sys.stderr)
        return 1
    try:
        if arguments.recipe:
            return recipes.run(options, arguments.recipe)
        if arguments.source:
            return sources.run(options, arguments.source)
        return suite.run(options)
    except suite.NoPictures as error:
        print(f"fastloader bench: {error}", file=sys.stderr)
        return 1


def _missing() -> str:
    """What the runner itself cannot do without; empty when it is all there."""
    for module in ("torch", "PIL.Image", "matplotlib"):
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken package raises whatever it likes
            name = module.partition(".")[0].replace("PIL", "Pillow")
            package = name.lower()
            return f"needs {name}: pip install {package} ({type(error).__name__}: {error})"
    return ""


def _interpreter(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in PEERS:
        raise argparse.ArgumentTypeError(f"{peer!r} is none of {', '.join(PEERS)}")
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{path!r} cannot be run; write {peer}=/path/to/python")
    return peer, path
