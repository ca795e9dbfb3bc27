"""Everything that touches CUDA, built, tested and measured on the machine this runs on.

    python tools/gpu_proof pack                  here: headers that the other machine may lack
    python tools/gpu_proof run [--out DIR] [--part 1|2|3 | --only STEP,...]      there
    python tools/gpu_proof run --list

Needs a GPU, nvcc, CMake, Ninja, pybind11, pytest and torch, and no internet. Run it with the Python that
has torch. `pack` puts libjpeg-turbo's headers and library, and the headers of the Python that runs
it, into .gpu-carry, which travels with the checkout; `run` takes from there what the system lacks.

Each step has a time limit and writes into one log; a step that fails stops no other. DIR then holds
`summary.json` (every step's exit status, seconds and last words), `steps.log` and what the benchmarks
leave. Exits with 1 if anything failed. The three parts take less than ten minutes each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from carried_headers import CARRIED, pack
from machine import ROOT
from runner import run, shown
from step import Options, StepFailed
from steps import NAMES, PART_SECONDS, choose


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="collect headers for a machine without them")
    packing.add_argument("--carry", type=Path, default=CARRIED, metavar="DIR")
    running = commands.add_parser("run", help="do the steps")
    out = Path(os.environ.get("OUT") or ROOT / "build" / "gpu")
    running.add_argument("--out", type=Path, default=out, metavar="DIR")
    running.add_argument(
        "--carry", type=Path, metavar="DIR", help="what `pack` made; its libjpeg-turbo is then used"
    )
    running.add_argument("--data", type=Path, metavar="DIR", help="pictures, for the benchmarks")
    running.add_argument("--quick", action="store_true", help="benchmarks that only show they run")
    running.add_argument("--part", type=int, choices=(1, 2, 3))
    running.add_argument("--only", metavar="STEP,...", help=", ".join(NAMES))
    running.add_argument("--limit", type=float, metavar="SECONDS", help="for all of it together")
    running.add_argument(
        "--patience", type=float, default=1, metavar="N", help="times the limits, on slow machines"
    )
    running.add_argument("--list", action="store_true", help="the steps and their limits")
    running.add_argument("--dry-run", action="store_true", help="the commands, in order")
    arguments = parser.parse_args()
    if arguments.command == "pack":
        return pack(arguments.carry.resolve())

    chosen = choose(arguments.part, arguments.only)
    if arguments.list:
        for step in chosen:
            print(f"{step.name:<11}part {step.part}  {step.limit:>4} s  {step.about}")
        return 0
    options = Options(
        arguments.out.resolve(),
        arguments.carry and arguments.carry.resolve(),
        arguments.data and arguments.data.resolve(),
        arguments.quick,
        arguments.dry_run,
    )
    if arguments.dry_run:
        for step in chosen:
            variables = [f"{name}={value}" for name, value in step.environment.items()]
            try:
                for command in step.commands(options):
                    print(f"{step.name}:", *variables, *shown(command))
            except StepFailed as failed:
                print(f"{step.name}: {failed}")
        return 0
    for step in chosen:
        step.limit = int(step.limit * arguments.patience)
    seconds = PART_SECONDS * (1 if arguments.part else 3) * arguments.patience
    return run(options, chosen, time.monotonic() + (arguments.limit or seconds))


if __name__ == "__main__":
    sys.exit(main())
