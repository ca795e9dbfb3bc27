"""JPEG folders, RandomResizedCrop-224 + flip: FastLoader beside every loader that is installed.

    python benchmarks/peers.py [--data DIR] [--threads 2] [--repeats 5] [--only PEER ...]
        [--python PEER=INTERPRETER ...]

Every scenario (scenarios/) has a process of its own, which stays alive over the rounds with its
worker processes; one runs at a time, the order turns round from round to round, and ratios are taken
round by round. What is not installed is skipped, and the reason stands in the results. Peers whose
packages exclude each other, such as Pillow and Pillow-SIMD, run with the interpreter of another
environment. Writes results/peers.json and results/peers.md.

Predicted, two threads of libjpeg-turbo on photographs of 470x400, uint8 unless said otherwise:
- 2.2 times DataLoader + Pillow. Pillow decodes the whole picture (1.9 ms) and resamples (0.5 ms) in
  scalar code; only the crop is decoded here (1.33 ms), and vector code resamples it in 0.15 ms.
- 3.0 times DataLoader + torchvision in float32, which adds ToTensor and Normalize, some five passes
  over the pixels and a batch of 38 MB through shared memory.
- 1.85 times Pillow-SIMD, 1.9 times DALI, 2.0 times torchvision v2 and FFCV: all but DALI decode the
  whole picture.
- 1.2 times the bare decode of whole pictures: of its time the crop's decode takes 0.70, the resample
  0.08, reading the file 0.01, and the rest 0.02.
- First batch of a new loader: 1.1 steady batches, since threads share its samples.
- Scaling from one thread to two 0.98 of the bare decode's: threads share nothing but a queue.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import comparison
from contender import Contender, Failed, Skipped
from measure import RESULTS, machine, write
from PIL import Image
from scenarios import SCENARIOS, Settings

from fastloader.cli import pictures

PEERS = list(dict.fromkeys(scenario.peer for scenario in SCENARIOS.values()))
MOST_MADE = 500  # pictures, where --data names none


def main() -> int:
    arguments = parse()
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fastloader-bench-") as work:
        found = photographs(arguments.data or made(Path(work, "made"), arguments.pictures))
        epoch = Path(work, "epoch")
        distinct = link(found, epoch, arguments.pictures)
        settings = Settings(str(epoch), work, arguments.threads, arguments.batch_size)
        contenders, skipped, failed = start(arguments, settings)
        try:
            run_rounds(contenders, arguments.repeats, failed)
        finally:
            for contender in contenders.values():
                contender.close()
    results = {
        "machine": machine(),
        "settings": {
            "data": arguments.data.name if arguments.data else "generated pictures",
            "distinct_pictures": distinct,
            "pictures": arguments.pictures,
            "batch_size": arguments.batch_size,
            "threads": arguments.threads,
            "repeats": arguments.repeats,
            "load_before": load,
        },
        "busy": load > cores / 2,
        "scenarios": {name: described(contender) for name, contender in contenders.items()},
        **comparison.compared(contenders, arguments.threads),
        "skipped": skipped,
        "failed": failed,
    }
    written = write("peers", results, arguments.out)
    table = comparison.markdown(results)
    written.with_suffix(".md").write_text(table + "\n")
    print(table, f"written: {written}", sep="\n\n")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder of class folders; else made pictures")
    parser.add_argument("--threads", type=positive, default=2, help="or worker processes")
    parser.add_argument("--repeats", type=positive, default=5, help="rounds")
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument(
        "--pictures",
        type=positive,
        default=2000,
        help="in an epoch: each of --data occurs as often as that takes, so that the beginning and "
        "the end of an epoch weigh little",
    )
    parser.add_argument(
        "--only", nargs="+", choices=[*PEERS, *SCENARIOS], metavar="PEER", help=", ".join(PEERS)
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        type=interpreter,
        metavar="PEER=INTERPRETER",
        help="runs that peer's scenarios with another environment's interpreter",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    arguments.python = dict(arguments.python)
    return arguments


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def interpreter(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in PEERS:
        raise argparse.ArgumentTypeError(f"{peer!r} is none of {', '.join(PEERS)}")
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{path!r} cannot be run; write {peer}=/path/to/python")
    return peer, path


def made(folder: Path, count: int) -> Path:
    tasks = pictures.missing_pictures(folder, min(count, MOST_MADE), 470, 400, seed=0)
    for _ready in pictures.make_pictures(tasks, len(os.sched_getaffinity(0))):
        pass
    return folder


def photographs(folder: Path) -> list[Path]:
    """The JPEGs that every peer can read: a bare decoder makes no RGB of a CMYK one."""
    found = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in (".jpg", ".jpeg"):
            with Image.open(path) as image:
                if image.format == "JPEG" and image.mode in ("RGB", "L"):
                    found.append(path)
    if not found:
        raise SystemExit(f"{folder}: no RGB or grey JPEG in any folder of it")
    return found


def link(found: list[Path], epoch: Path, count: int) -> int:
    """Makes a folder of class folders with ``count`` links to the pictures, and returns how many
    different ones they are."""
    chosen = found[:: max(1, len(found) // count)][:count]
    for number in range(count):
        path = chosen[number % len(chosen)]
        folder = epoch / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number // len(chosen)}_{path.name}").symlink_to(path.resolve())
    return len(chosen)


def start(
    arguments: argparse.Namespace, settings: Settings
) -> tuple[dict[str, Contender], dict[str, str], dict[str, str]]:
    contenders: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, scenario in SCENARIOS.items():
        if arguments.only and not {name, scenario.peer} & set(arguments.only):
            continue
        progress(f"{name}: first epoch")
        python = arguments.python.get(scenario.peer)
        try:
            contenders[name] = Contender(name, scenario, settings, python)
        except Skipped as reason:
            skipped[name] = str(reason)
        except Failed as reason:
            failed[name] = str(reason)
    return contenders, skipped, failed


def run_rounds(contenders: dict[str, Contender], repeats: int, failed: dict[str, str]) -> None:
    """Who fails is out, with all its rounds."""
    for number in range(repeats):
        order = list(contenders)
        if number % 2:
            order.reverse()
        for name in order:
            progress(f"round {number + 1} of {repeats}: {name}")
            try:
                contenders[name].round()
            except Failed as reason:
                failed[name] = str(reason)
                contenders.pop(name).close()


def progress(text: str) -> None:
    begin, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)


def described(contender: Contender) -> dict[str, Any]:
    scenario = contender.scenario
    return {
        "label": scenario.label,
        "peer": scenario.peer,
        "output": scenario.output,
        "remark": scenario.remark,
        "threads": contender.threads,
        "versions": contender.versions,
        "seconds_per_picture": contender.timing.seconds,
        "pictures_per_s": comparison.spread([1 / each for each in contender.timing.seconds]),
        "cpu_s_per_picture": contender.cpu.seconds,
        "cold_first_batch_s": contender.cold_first_batch_s,
        "first_batches": contender.first_batches,
        "memory": contender.memory,
    }


if __name__ == "__main__":
    sys.exit(main())
