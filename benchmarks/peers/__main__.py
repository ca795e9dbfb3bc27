"""The loaders installed on this machine, side by side. In a checkout:

    python -m benchmarks.peers [--data DIR] [--only PEER ...] [--sets] [--device cuda]
    python -m benchmarks.peers --data DIR --recipe all
    python -m benchmarks.peers --data DIR --source all --threads 2 --repeats 5

docs/bench.md says what each compares.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from benchmarks.peers import crops, places, recipes
from benchmarks.peers.scenarios import EVERY
from fastloader._core.machine.limits import available_threads
from fastloader.cli.tasks import HelpFormat, at_least_one


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Runs the same pictures through every loader that is installed, each in a "
        "process of its own, in turns: RandomResizedCrop to 224 and flip. Writes peers.json, "
        "peers.md and plots to --out. What is not installed is listed with the reason. "
        f"Peers: {', '.join(crops.PEERS)}. With --recipe, training recipes run instead, through "
        "FastLoader and a plain DataLoader over the original datasets and transforms; that writes "
        f"recipes.json, recipes.md and recipes.png. Recipes: {', '.join(recipes.RECIPES)}. With "
        "--source, FastLoader reads the same pictures from different places, beside the loaders that "
        "people read them with; that writes sources.json, sources.md and sources.png. "
        f"Places: {', '.join(places.SOURCES)}.",
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
        choices=list(dict.fromkeys([*crops.PEERS, *crops.SCENARIOS, *crops.ON_DEVICE])),
        default=[],
        metavar="PEER",
        help="these peers or scenarios and no others",
    )
    parser.add_argument(
        "--recipe",
        nargs="+",
        choices=[*recipes.RECIPES, EVERY],
        metavar="NAME",
        default=[],
        help=f"compare over these training recipes, or over {EVERY} of them; needs torchvision, and "
        "timm for its own recipes",
    )
    parser.add_argument(
        "--source",
        nargs="+",
        choices=[*places.SOURCES, EVERY],
        metavar="NAME",
        default=[],
        help=f"compare the readers of these places, or of {EVERY} of them, with a folder and with "
        "others' readers; needs lmdb, datasets, webdataset, pyarrow, pymongo and nx-27017 for theirs. "
        f"--threads {places.THREADS} --repeats {places.ROUNDS} gives steady ratios",
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
    return parser


def default_threads(available: int) -> list[int]:
    """One, all, and the middle of the two on a logarithmic scale."""
    return sorted({1, round(math.sqrt(available)), available})


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; argparse itself exits with 2 on bad usage."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    for kind, others in (
        ("recipe", ("only", "device", "python", "sets")),
        ("source", ("recipe", "only", "device", "python", "sets")),
    ):
        for name in others if getattr(arguments, kind) else ():
            if getattr(arguments, name):
                parser.error(f"--{name} does not go with --{kind}")
    try:
        import matplotlib  # noqa: F401 - it would be missed when all is measured

        from benchmarks.peers import suite
        from fastloader._core.machine import devices
    except ImportError as error:
        parser.error(f"{error}: pip install '.[bench]' in the checkout brings what is needed")
    options = suite.Options(
        data=arguments.data,
        threads=sorted(set(arguments.threads)),
        repeats=arguments.repeats,
        batch_size=arguments.batch_size,
        pictures=arguments.pictures,
        out=arguments.out,
        only=arguments.only,
        python=dict(arguments.python),
        device=arguments.device,
        sets=arguments.sets,
        recipes=arguments.recipe,
        places=arguments.source,
    )
    try:
        devices.resolve_device(options.device)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    try:
        return suite.run(options)
    except suite.NoPictures as error:
        parser.error(str(error))


def _interpreter(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in crops.PEERS:
        raise argparse.ArgumentTypeError(f"{peer!r} is none of {', '.join(crops.PEERS)}")
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{path!r} cannot be run; write {peer}=/path/to/python")
    return peer, path


if __name__ == "__main__":
    sys.exit(main())
