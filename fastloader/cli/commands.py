"""Adds the commands that measure a loader and prepare data, with the standard library alone: what
they do is imported when they run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fastloader._core.machine.limits import available_threads
from fastloader.cli import tasks
from fastloader.cli.tasks import HelpFormat, at_least_one, printable, whole_number

# ---- ``fastloader check``


def add_check(commands: Any) -> None:
    """Adds the command to ``commands``, which is what argparse's add_subparsers returns; its type has no
    public name."""
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
    parser.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
    from fastloader.cli.check import check

    try:
        return check(arguments.folder, arguments.workers, arguments.json)
    except BrokenPipeError:  # whoever reads has seen enough: `main` knows
        raise
    except (ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader check: {error}"), file=sys.stderr)
        return 2


# ---- ``fastloader index``


def add_index(commands: Any) -> None:
    """Adds the command; see `add_check`."""
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
    tasks.add_option(parser)
    parser.set_defaults(run=run_index)


def run_index(arguments: argparse.Namespace) -> int:
    from fastloader.cli.index import IndexingError, index

    try:
        index(arguments.folder, arguments.out, arguments.workers, arguments.ray)
    except (IndexingError, ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader index: {error}"), file=sys.stderr)
        return 1
    return 0


# ---- ``fastloader push``


def add_push(commands: Any) -> None:
    """Adds the command; see `add_check`."""
    parser = commands.add_parser(
        "push",
        help="put a folder's pictures into a MongoDB collection, as MongoImages reads them",
        description="Puts each picture of a folder into a document: its path within the folder, its "
        "bytes, and the number of its class. Makes the index that MongoImages asks for. Run again, "
        "after Ctrl-C or a lost connection, it puts there what is missing.",
        epilog="fastloader push photos/train mongodb://localhost/data --list train.json",
        formatter_class=HelpFormat,
    )
    parser.add_argument("folder", metavar="DIR", help="a folder with a subfolder for each class")
    parser.add_argument("uri", metavar="URI", help="mongodb://SERVER/DATABASE, with any options")
    parser.add_argument("--collection", default="photos", help="default: photos")
    parser.add_argument("--key", default="img_name", help="the field of paths (default: img_name)")
    parser.add_argument(
        "--image", default="bson_img", help="the field of pictures (default: bson_img)"
    )
    parser.add_argument("--label", default="label", help="the field of labels (default: label)")
    parser.add_argument(
        "--list",
        metavar="FILE",
        help='also write {"path_list": [...], "label_list": [...]}, for MongoImages(order=FILE)',
    )
    parser.set_defaults(run=run_push)


def run_push(arguments: argparse.Namespace) -> int:
    from fastloader.cli.push import Fields, PushError, push

    fields = Fields(arguments.key, arguments.image, arguments.label)
    try:
        push(arguments.folder, arguments.uri, arguments.collection, fields, arguments.list)
    except (PushError, ImportError, OSError) as error:
        print(printable(f"fastloader push: {error}"), file=sys.stderr)
        return 1
    return 0


# ---- ``fastloader pack``


def add_pack(commands: Any) -> None:
    """Adds the command; see `add_check`."""
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
    tasks.add_option(parser)
    parser.set_defaults(run=run_pack)


def run_pack(arguments: argparse.Namespace) -> int:
    from fastloader.cli.pack_source import Encoding, SourceError

    wanted = 1 if arguments.check else 2
    if len(arguments.paths) != wanted:
        what = "--check takes DST" if arguments.check else "pack takes SRC and DST"
        print(f"fastloader pack: {what}, got {' '.join(arguments.paths)}", file=sys.stderr)
        return 2
    try:
        from fastloader.cli import pack

        if arguments.check:
            return pack.check(arguments.paths[0])
        return pack.pack(
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


# ---- ``fastloader tune``


def add_tune(commands: Any) -> None:
    """Adds the command; see `add_check`."""
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
    parser.set_defaults(run=run_tune)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 86400 seconds")
    return value


def run_tune(arguments: argparse.Namespace) -> int:
    from fastloader.cli.tune_change import TuneError

    try:
        from fastloader.cli.tune import tune

        tune(arguments.loader, arguments.seconds, arguments.step)
    except (TuneError, ImportError) as error:
        print(f"fastloader tune: {error}", file=sys.stderr)
        return 2
    return 0


# ---- ``fastloader bench``

# Options of the comparison with other loaders, over training recipes and from other places.
MOVED = ("--only", "--recipe", "--source", "--sets", "--device", "--python", "--out")


class _Moved(argparse.Action):
    """Ends the command, and says where its option is now."""

    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: Any, _values: Any, option: Any = None
    ) -> None:
        parser.error(
            f"{option} is an option of the comparison with other loaders, which has left the package: "
            "python -m benchmarks.peers runs it, in a checkout of fastloader (benchmarks/peers)"
        )


def add_bench(commands: Any) -> None:
    """Adds the command; see `add_check`."""
    parser = commands.add_parser(
        "bench",
        help="FastLoader beside DataLoader and torchvision on your pictures",
        description="Makes batches of the same pictures with FastLoader, with DataLoader and, if it is "
        "installed, with torchvision's dataset and transforms in DataLoader, in turns: "
        "RandomResizedCrop to 224 and flip. Prints how fast each is. Nothing is written. The comparison "
        "with other loaders, over training recipes and from other places of pictures is python -m "
        "benchmarks.peers, in a checkout of fastloader.",
        epilog="fastloader bench photos/train\nfastloader bench photos/train --threads 4 --repeats 5",
        formatter_class=HelpFormat,
    )
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="a folder with a subfolder for each class, as for ImageFolder",
    )
    data.add_argument("--data", type=Path, metavar="DIR", help="the same")
    parser.add_argument(
        "--threads",
        type=at_least_one,
        default=available_threads(),
        metavar="N",
        help="FastLoader's threads, and DataLoader's worker processes (default: all CPUs)",
    )
    parser.add_argument("--repeats", type=at_least_one, default=3, help="rounds")
    parser.add_argument("--batch-size", type=at_least_one, default=64, help="pictures in a batch")
    parser.add_argument(
        "--pictures",
        type=at_least_one,
        default=1000,
        help="in an epoch, from all parts of the folder; one of fewer pictures gives each as often as "
        "that takes",
    )
    for option in MOVED:
        parser.add_argument(option, nargs="*", action=_Moved, help=argparse.SUPPRESS)
    parser.set_defaults(run=run_bench)


def run_bench(arguments: argparse.Namespace) -> int:
    from fastloader.cli.tune_change import TuneError

    try:
        from fastloader.cli.bench import bench

        bench(
            arguments.folder or arguments.data,
            arguments.threads,
            arguments.repeats,
            arguments.batch_size,
            arguments.pictures,
        )
    except BrokenPipeError:  # whoever reads has seen enough: `main` knows
        raise
    except (TuneError, ImportError, OSError, ValueError) as error:
        print(printable(f"fastloader bench: {error}"), file=sys.stderr)
        return 1
    return 0
