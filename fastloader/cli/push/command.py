"""``fastloader push``: its arguments."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastloader.cli.help_format import HelpFormat
from fastloader.cli.printable import printable


def add_command(commands: Any) -> None:
    """``commands`` is what argparse's add_subparsers returns; its type has no public name."""
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fastloader.cli.push.pusher import Fields, PushError, push

    fields = Fields(arguments.key, arguments.image, arguments.label)
    try:
        push(arguments.folder, arguments.uri, arguments.collection, fields, arguments.list)
    except (PushError, ImportError, OSError) as error:
        print(printable(f"fastloader push: {error}"), file=sys.stderr)
        return 1
    return 0
