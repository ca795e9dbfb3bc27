"""``fastloader pack``: pictures into one LMDB file, arrays into a folder, and the check of these."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastloader.cli import ray_tasks
from fastloader.cli.help_format import HelpFormat
from fastloader.cli.printable import printable
from fastloader.cli.whole_number import at_least_one, whole_number


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
    parser = commands.add_parser(
        "pack",
        help="put pictures into one LMDB file, or arrays into a folder of .npy files",
        description="Packs a folder of class folders, or any dataset of (picture, label), into one "
        "LMDB file, which fastloader.datasets.LMDBDataset reads. A dataset of arrays, or of tuples of "
        "arrays and numbers, becomes a folder, which PackedArrays reads. Interrupted (Ctrl-C, kill, "
        "full disk), it keeps what was written; run the same "
        "command again and it goes on.",
        epilog="fastloader pack photos/train train.lmdb\n"
        "fastloader pack my_data:train_set train.lmdb --quality 90\n"
        "fastloader pack --check train.lmdb",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="SRC DST",
        help="SRC: a folder with a subfolder for each class, or module:expression for a dataset; "
        "DST: the file, or the folder of arrays, to write. With --check only DST",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only verify every record of DST; damage is named by key",
    )
    parser.add_argument(
        "--max-side",
        type=at_least_one,
        metavar="PIXELS",
        help="shrink pictures whose longer side is above this (default: keep the original bytes)",
    )
    parser.add_argument(
        "--quality",
        type=_quality,
        metavar="1..100",
        help="re-encode every picture as JPEG of this quality (with --max-side alone: 90, and only "
        "what is shrunk)",
    )
    parser.add_argument(
        "--recode",
        choices=["baseline"],
        help="write progressive JPEGs anew as sequential (baseline) ones, which decode about twice as "
        "fast: the same pixels to the bit, some 5 %% more bytes. Files that anything is wrong with, or "
        "that have something behind their end, stay as they are",
    )
    parser.add_argument(
        "--index",
        action=argparse.BooleanOptionalAction,
        help="keep a seek index beside each sequential JPEG (1 to 2 %% more bytes), with which crops "
        "decode faster; the pictures stay as they are (default: as the file that is gone on "
        "with, and on for a new one; --no-index makes one that an older fastloader reads)",
    )
    parser.add_argument(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="threads that read and encode (default: all CPUs)",
    )
    ray_tasks.add_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fastloader.cli.pack.encoding import Encoding
    from fastloader.cli.pack.source_error import SourceError

    wanted = 1 if arguments.check else 2
    if len(arguments.paths) != wanted:
        what = "--check takes DST" if arguments.check else "pack takes SRC and DST"
        print(f"fastloader pack: {what}, got {' '.join(arguments.paths)}", file=sys.stderr)
        return 2
    try:
        from fastloader.cli.pack import packer

        if arguments.check:
            return packer.check(arguments.paths[0])
        return packer.pack(
            arguments.paths[0],
            arguments.paths[1],
            Encoding(
                arguments.max_side,
                arguments.quality,
                arguments.recode,
                arguments.index,
            ),
            arguments.workers,
            arguments.ray,
        )
    except (SourceError, ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader pack: {error}"), file=sys.stderr)
        return 1


def _quality(text: str) -> int:
    value = whole_number(text)
    if not 1 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 100")
    return value
