"""Runs ``fastloader demo``: the same short training with FastLoader and with torch's DataLoader."""

from __future__ import annotations

import argparse
import errno
import importlib
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastloader._core.machine.limits import available_threads
from fastloader.cli.tasks import HelpFormat, at_least_one, not_negative

if TYPE_CHECKING:
    from fastloader.cli.demo_training import Job, Run


# ---- ``fastloader demo``: the same short training with FastLoader and with torch's DataLoader.


WIDTH, HEIGHT = 400, 300  # of the pictures it makes
# ---- fastloader demo.


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DemoError(Exception):
    """Ends the demo with a message and no traceback."""


def add_command(commands: Any) -> None:
    """Adds the command to ``commands``, which is what argparse's add_subparsers returns; its type has no
    public name."""
    parser = commands.add_parser(
        "demo",
        help="train a small network with FastLoader and with DataLoader, and compare",
        description="Trains a small convolutional network for a few hundred steps with FastLoader, "
        "then the same steps with torch's DataLoader on the same dataset, and prints what each took, "
        "side by side. "
        "Leaves batches.png (pictures with their crops, epoch by epoch) and waits.png (when the loop "
        "waited, and when it trained) in --out.",
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="a folder of pictures, one subfolder for each class; without it, pictures are made",
    )
    parser.add_argument("--pictures", type=at_least_one, default=720, help="how many to make")
    parser.add_argument("--steps", type=at_least_one, default=200, help="training steps")
    parser.add_argument("--batch-size", type=at_least_one, default=32, help="pictures per step")
    parser.add_argument(
        "--workers",
        type=not_negative,
        default=min(8, available_threads()),
        help="decode threads for FastLoader, worker processes for DataLoader",
    )
    parser.add_argument("--size", type=at_least_one, default=96, help="side of the crops, pixels")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where results go")
    parser.add_argument("--seed", type=not_negative, default=0, help="of pictures and training")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        check_folder(arguments.out)
        require_packages()
        _compare(arguments)
    except BrokenPipeError:  # whoever reads has seen enough: `main` knows
        raise
    except DemoError as error:
        print(f"fastloader demo: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(
            f"fastloader demo: --out {arguments.out}: {os.strerror(error.errno)}; make room, or name "
            "another folder",
            file=sys.stderr,
        )
        return 1
    return 0


def require_packages() -> None:
    """Raises DemoError that says how to get whatever is missing."""
    for module, message in (
        ("torch", "needs torch: pip install torch"),
        (
            "PIL.Image",
            "needs Pillow or Pillow-SIMD: pip install pillow, or for the faster fork, which compiles "
            "on this machine, pip install pillow-simd",
        ),
        ("tqdm", "needs tqdm and matplotlib: pip install tqdm matplotlib"),
        ("matplotlib", "needs tqdm and matplotlib: pip install tqdm matplotlib"),
    ):
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken package raises whatever it likes
            raise DemoError(f"{message} ({type(error).__name__}: {error})") from error


def check_folder(folder: Path) -> None:
    """Makes the folder. Raises DemoError if nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DemoError(
            f"--out {folder} cannot be written: {error.strerror or error}; name another folder"
        ) from error


def _compare(arguments: argparse.Namespace) -> None:
    from fastloader.cli import demo_plots, demo_training

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    try:
        device = demo_training.resolve_device(arguments.device)
        folder = arguments.data or _made_pictures(arguments)
        count = len(demo_training.make_dataset(folder, arguments.size))
    except (ValueError, FileNotFoundError) as error:
        raise DemoError(str(error)) from error

    print(f"Training {arguments.steps} steps with each loader ...\n", flush=True)
    runs = []
    for loader in ("FastLoader", "DataLoader"):
        job = demo_training.Job(
            loader=loader,
            folder=folder,
            device=device,
            steps=arguments.steps,
            # Incomplete batches are dropped: one larger than the dataset would never come.
            batch_size=min(arguments.batch_size, count),
            workers=arguments.workers,
            size=arguments.size,
            seed=arguments.seed,
        )
        runs.append(run_in_own_process(job))

    print(demo_plots.side_by_side(runs, demo_plots.compare_pixels(folder, arguments.size)))
    if load > available_threads() / 2:
        print(
            f"\nThis machine was busy with other work when the demo began (load {load:.1f} on "
            f"{available_threads()} CPUs): repeat it when it is idle, the times above say little."
        )
    batches, waits = arguments.out / "batches.png", arguments.out / "waits.png"
    demo_plots.draw_crops(demo_plots.crop_some(folder, arguments.size, arguments.seed), batches)
    demo_plots.draw_waits(runs, waits)
    print(f"\nFiles, crops and batches: {batches}\nWhen the loops waited:    {waits}")
    print(f"\n{demo_plots.gain(runs)}")


def _made_pictures(arguments: argparse.Namespace) -> Path:
    from tqdm import tqdm

    from fastloader.cli import pictures

    # All that the pictures depend on is in the name, so that a folder never has to be emptied.
    name = f"{arguments.pictures}-of-{WIDTH}x{HEIGHT}-seed{arguments.seed}"
    folder: Path = arguments.out / "data" / name
    tasks = pictures.missing_pictures(folder, arguments.pictures, WIDTH, HEIGHT, arguments.seed)
    disable = None if tasks else True  # None: unless stderr is a terminal
    with tqdm(total=len(tasks), desc="pictures", dynamic_ncols=True, disable=disable) as bar:
        for ready in pictures.make_pictures(tasks, available_threads()):
            bar.update(ready)
    return folder


def run_in_own_process(job: Job) -> Run:
    from fastloader.cli import demo_training

    # Not forked: CUDA does not survive that, and memory would be shared with what this one holds.
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    process = spawning.Process(target=demo_training.train_and_send, args=(job, sender))
    process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    try:
        answer: Run | str = receiver.recv()
        process.join(timeout=30)
    except EOFError:
        process.join()
        raise DemoError(_cause_of_death(job, process.exitcode)) from None
    finally:
        # After Ctrl-C it is still at work, and knows nothing of it.
        process.terminate()
        process.join()
        receiver.close()
    if isinstance(answer, str):
        raise DemoError(answer)
    return answer


def _cause_of_death(job: Job, status: int | None) -> str:
    if status is not None and status < 0:
        return (
            f"the training with {job.loader} was killed by signal {-status}, most likely for want "
            "of memory; try a smaller --batch-size or fewer --workers, and see `fastloader doctor`"
        )
    return f"the training with {job.loader} failed; its error is above"
