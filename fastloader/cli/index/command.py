"""``fastloader index``: the seek indices of a folder's JPEGs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastloader.cli import ray_tasks
from fastloader.cli.help_format import HelpFormat
from fastloader.cli.printable import printable
from fastloader.cli.whole_number import at_least_one


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
    parser = commands.add_parser(
        "index",
        help="make a file of seek indices, with which crops of a folder's JPEGs are decoded faster",
        description="Looks through the JPEGs of a folder and writes down where parts of each picture "
        "begin, so that decoding a crop need not parse what stands before it. The pictures stay as they "
        "are. fastloader.datasets.ImageFolder finds the file by itself, if it lies beside the folder. "
        "Interrupted (Ctrl-C), the command leaves nothing behind.",
        epilog="fastloader index photos/train\n"
        "fastloader index photos/train --out indices/train.fastloader-index",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="a folder with a subfolder for each class, as for ImageFolder; or a folder of JPEGs",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the file to write (default: DIR.fastloader-index, beside the folder). "
        "ImageFolder(DIR, index=FILE) uses it",
    )
    parser.add_argument(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="threads that read and parse (default: all CPUs)",
    )
    ray_tasks.add_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fastloader.cli.index.indexer import IndexingError, index

    try:
        index(arguments.folder, arguments.out, arguments.workers, arguments.ray)
    except (IndexingError, ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader index: {error}"), file=sys.stderr)
        return 1
    return 0
