"""``fastloader check``: its arguments."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastloader.cli.help_format import HelpFormat
from fastloader.cli.printable import printable
from fastloader.cli.whole_number import at_least_one


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
    parser = commands.add_parser(
        "check",
        help="decode every picture of a folder, and list those that are bad",
        description="Decodes every picture of a folder, at any depth, and prints each one that cannot "
        "be decoded, with the reason: damaged or truncated files, files that are no picture, and "
        "pictures that Pillow refuses for their size. It changes nothing. The exit status is 0 if all "
        "are sound, 1 if any is bad, and 2 if there is nothing to check.",
        epilog="fastloader check photos/train\n"
        "fastloader check photos/train --json > bad.json\n"
        "fastloader check train.lmdb",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="a folder of pictures or of tar shards; or one shard, or a file of `fastloader pack`",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object at the end, and nothing else"
    )
    parser.add_argument(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="threads that decode (default: all CPUs)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fastloader.cli.check.checker import check

    try:
        return check(arguments.folder, arguments.workers, arguments.json)
    except BrokenPipeError:  # whoever reads has seen enough: `main` knows
        raise
    except (ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader check: {error}"), file=sys.stderr)
        return 2
