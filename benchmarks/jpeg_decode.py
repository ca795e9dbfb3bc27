"""JPEG: our own decoder against libjpeg-turbo's decode of the same region, on one thread.

    cmake --preset benchmarks && cmake --build --preset benchmarks --target jpeg_decode
    python benchmarks/jpeg_decode.py [--data DIR] [--pictures 200] [--rounds 9 | --check 50]

Without ``--data``, made-up photographs. Four sets of the same pictures: as they are, and written again
by Pillow at 4:4:4 with quality 90, at 4:2:0 with quality 85, and that as a progressive JPEG. Of each,
the program benchmarks/jpeg_decode.cpp decodes the boxes of RandomResizedCrop and the whole pictures from
memory, with CPU time of one pinned thread, all contenders in turn for each 25 pictures. A ratio is how
many times as fast as libjpeg-turbo ours is: of a round, the sums over all pictures. ``--check`` measures
nothing: it compares that many random regions of each picture, on each instruction set, with
libjpeg-turbo's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from measure import RESULTS, make_photographs, write
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "benchmarks" / "benchmarks" / "jpeg_decode"
BUILD = "cmake --preset benchmarks && cmake --build --preset benchmarks --target jpeg_decode"

# How Pillow writes each set; None leaves the files as they are.
SETS: dict[str, dict[str, Any] | None] = {
    "as they are": None,
    "4:4:4, quality 90": {"quality": 90, "subsampling": "4:4:4"},
    "4:2:0, quality 85": {"quality": 85, "subsampling": "4:2:0"},
    "4:2:0, quality 85, progressive": {
        "quality": 85,
        "subsampling": "4:2:0",
        "progressive": True,
    },
}


def photographs(folder: Path, count: int) -> list[Path]:
    """At most ``count`` of the folder's JPEGs, from all parts of it."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not paths:
        raise SystemExit(f"{folder}: no JPEG in it")
    return paths[:: -(-len(paths) // count)]


def make_set(paths: list[Path], folder: Path, options: dict[str, Any] | None) -> None:
    folder.mkdir()
    for index, path in enumerate(paths):
        copy = folder / f"{index:05}.jpg"
        if options is None:
            shutil.copyfile(path, copy)
            continue
        with Image.open(path) as picture:
            picture.convert("RGB").save(copy, "JPEG", **options)


def run(program: Path, *arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip() or f"{program}: status {done.returncode}")
    print(done.stderr, end="")  # what it left out
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def show(name: str, found: dict[str, Any]) -> None:
    for job, each in found["jobs"].items():
        own = found["pictures"] - sum(each["handed_over"].values())
        print(f"{name}, {job}: {own} of {found['pictures']} pictures by our own decoder")
        for contender, timing in each["contenders"].items():
            ratio = timing.get("ratio")
            beside = ""
            if ratio is not None:
                beside = f"{ratio['median']:8.2f} x ({ratio['min']:.2f} to {ratio['max']:.2f})"
            milliseconds = timing["ms_per_picture"]["median"]
            print(f"  {milliseconds:8.3f} ms  {contender:15}{beside}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with JPEGs, at any depth")
    parser.add_argument("--pictures", type=int, default=200, help="how many of them at most")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", type=int, metavar="REGIONS", help="compare, and time nothing")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if not arguments.program.is_file():
        raise SystemExit(f"{arguments.program} is not there; build it: {BUILD}")
    sets: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.data
        if folder is None:
            folder = Path(made) / "photographs"
            rng = np.random.default_rng(0)
            make_photographs(folder, arguments.pictures, 375, 500, rng)
        paths = photographs(folder, arguments.pictures)
        for number, (name, options) in enumerate(SETS.items()):
            place = Path(made) / f"set{number}"
            make_set(paths, place, options)
            if arguments.check is not None:
                print(name, run(arguments.program, place, "check", str(arguments.check)))
            else:
                sets[name] = run(arguments.program, place, str(arguments.rounds))
                show(name, sets[name])
            shutil.rmtree(place)
    if arguments.check is not None:
        return
    results = {"threads": 1, "pillow": PIL.__version__, "sets": sets}
    print("written:", write("jpeg_decode", results, arguments.out))


if __name__ == "__main__":
    main()
