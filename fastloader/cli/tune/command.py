"""``fastloader tune``: its arguments."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastloader.cli.help_format import HelpFormat


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
    parser = commands.add_parser(
        "tune",
        help="run your own loader for a minute, and say how fast it is and what to change",
        description="Runs a loader of yours, with your training step if you name it. Prints how fast "
        "it is, where its time goes, which step of its transform keeps it from the native path, and the "
        "change to your file as a diff. A DataLoader is compared with the FastLoader that the diff "
        "makes of it, each for half of the time. Nothing is written.",
        epilog="fastloader tune my_module:make_loader\n"
        "fastloader tune train.py:make_loader --step train.py:step --seconds 20\n"
        "fastloader tune train.py:make_loader | sed -n '/^--- /,$p' | patch -p0",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "loader",
        metavar="MODULE:NAME",
        help="a function that takes nothing and returns a DataLoader or a FastLoader, or such a loader. "
        "MODULE may also be the path of a .py file",
    )
    parser.add_argument(
        "--step",
        metavar="MODULE:NAME",
        help="a function that takes a batch and trains with it: it is called with each batch, and the "
        "report says what there is to win in that loop (default: no step)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=60.0,
        help="how long to measure, all loaders together (default: 60)",
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 86400 seconds")
    return value


def run(arguments: argparse.Namespace) -> int:
    from fastloader.cli.tune.target import TuneError

    try:
        from fastloader.cli.tune.tuning import tune

        tune(arguments.loader, arguments.seconds, arguments.step)
    except (TuneError, ImportError) as error:
        print(f"fastloader tune: {error}", file=sys.stderr)
        return 2
    return 0
