"""Entry point of ``fastloader`` and of ``python -m fastloader.cli``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fastloader._core.machine.build_info import installed_version

# Standard library only, here and in all: doctor must start where torch or Pillow cannot.
from fastloader.cli import commands, demo, doctor


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastloader",
        description="A drop-in torch DataLoader for training on pictures.",
    )
    parser.add_argument("--version", action="version", version=f"fastloader {installed_version()}")
    known = parser.add_subparsers(title="commands", dest="command", required=True)
    for add in (
        demo.add_command,
        doctor.add_command,
        commands.add_tune,
        commands.add_check,
        commands.add_pack,
        commands.add_index,
        commands.add_push,
        commands.add_bench,
    ):
        add(known)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit status; argparse itself exits with 2 on bad usage."""
    arguments = make_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `fastloader doctor | head`: the reader has seen enough. Python would complain once more
        # when it flushes at exit.
        sys.stdout = None
        return 141
    return status


if __name__ == "__main__":
    sys.exit(main())
