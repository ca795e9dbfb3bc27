"""Everything about speed that needs a GPU, in one go.

    python benchmarks/gpu/run.py --out benchmarks/results [--data DIR] [--only NAME ...] [--quick]

Parts, in this order: normalise (the kernel against a copy within the device), h2d (the ring against bare
pinned copies), next (what next() takes), step (a training step of ResNet-50 against the same on a cached
batch), peers (other loaders on the same pictures). Each is a file beside this one that says how it is
measured and what is predicted. Writes gpu-NAME.json to --out, NAME from the device, anew after every
part; a part that fails leaves its traceback there, the others go on, and the exit status is 1.

Without --data, pictures are made. --rehearse runs the whole on the host twin, in a minute and without a
GPU: no figure of it means anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# `benchmarks` itself, which nothing installs.
sys.path.append(str(Path(__file__).resolve().parents[2]))

PARTS = ("normalise", "h2d", "next", "step", "peers")

Json = dict[str, Any]


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="a folder of class folders with JPEGs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER", help="only these")
    parser.add_argument("--threads", type=int, help="or worker processes; 16, or all there are")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="some three minutes instead of seven")
    how.add_argument("--rehearse", action="store_true", help="on the host twin, without a GPU")
    return parser.parse_args(argv)


def missing(rehearsal: bool) -> str:
    """Why nothing can be measured here; empty when all is there."""
    try:
        import torch
        from PIL import Image  # noqa: F401

        from fastloader._core.machine import devices, extension
    except ImportError as error:
        return f"needs torch, Pillow and fastloader ({error})"
    if extension.load() is None:
        return "needs fastloader's native module: " + (
            extension.problem() or "it is switched off or was left out on purpose"
        )
    if rehearsal:
        return ""
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} finds no CUDA device here; "
            "--rehearse runs everything without one, and measures nothing"
        )
    problem = devices.native_cuda_problem()
    return f"native CUDA cannot be used: {problem}" if problem else ""


def versions() -> Json:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    import fastloader

    native = fastloader.build_info().get("cuda", {})
    found: Json = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "fastloader": fastloader.build_info()["version"],
        "native_cuda_runtime": native.get("runtime_version"),
        "native_architectures": native.get("architectures"),
    }
    for name in ("torchvision", "timm", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = arguments_of(argv)
    problem = missing(arguments.rehearse)
    if problem:
        print(f"benchmarks/gpu: {problem}", file=sys.stderr)
        return 2
    if arguments.rehearse:
        os.environ["FASTLOADER_BACKEND"] = "host"  # here and in the processes of the peers
    else:
        os.environ.pop("FASTLOADER_BACKEND", None)
    return measure(arguments)


def measure(arguments: argparse.Namespace) -> int:
    import torch
    from device import Cuda, Twin, slug
    from plan import FULL, QUICK, REHEARSAL

    from benchmarks.measure import machine
    from fastloader._core.machine.limits import available_threads

    device = Twin() if arguments.rehearse else Cuda()
    plan = REHEARSAL if arguments.rehearse else QUICK if arguments.quick else FULL
    threads = arguments.threads or min(16, available_threads())
    results: Json = {
        "machine": machine(),
        "device": device.name,
        "driver": device.driver(),
        "torch": torch.__version__,
        "versions": versions(),
        "plan": dataclasses.asdict(plan),
        "threads": threads,
        "load_before": os.getloadavg()[0],
        "ratios": {},
        "goals": [],
        "predictions": predictions(),
        "seconds": {},
        "failed": {},
    }
    name = "rehearsal" if arguments.rehearse else slug(device.name)
    written = arguments.out / f"gpu-{name}.json"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fastloader-gpu-") as work:
        parts = Parts(
            device, plan, arguments, threads, Path(work), results, lambda: write(results, written)
        )
        for part in PARTS:
            if part not in arguments.only:
                continue
            print(f"{part} ...", file=sys.stderr, flush=True)
            begin = time.perf_counter()
            try:
                results[part] = parts.run[part]()
            except Exception:
                results["failed"][part] = traceback.format_exc()
                print(results["failed"][part], file=sys.stderr)
            device.release()
            results["seconds"][part] = time.perf_counter() - begin
            write(results, written)
    print(summary(results))
    print(f"written: {written}")
    return 1 if results["failed"] or results.get("peers", {}).get("failed") else 0


class Parts:
    """What each part is told. JPEGs are made when the first of them asks."""

    def __init__(
        self,
        device: Any,
        plan: Any,
        arguments: argparse.Namespace,
        threads: int,
        work: Path,
        results: Json,
        save: Callable[[], None],
    ) -> None:
        import h2d
        import next_us
        import normalise
        import peers
        import step

        self._arguments, self._threads, self._work = arguments, threads, work
        self._device, self._plan, self._results = device, plan, results
        self._settings: Any = None
        self.run: dict[str, Callable[[], Json]] = {
            "normalise": lambda: normalise.measure(device, plan),
            "h2d": lambda: h2d.measure(device, plan),
            "next": lambda: next_us.measure(device, plan),
            "step": lambda: step.measure(device, plan, self.settings()),
            "peers": lambda: peers.measure(
                device, plan, self.settings(), arguments.peers, save_peers
            ),
        }

        def save_peers(so_far: Json) -> None:
            results["peers"] = so_far
            save()

    def settings(self) -> Any:
        import step

        from benchmarks.peers.scenarios import Settings

        if self._settings is None:
            root, data, distinct = step.photographs(self._arguments.data, self._plan, self._work)
            self._results["data"] = {"name": data, "distinct_pictures": distinct}
            place = str(self._device.torch_device)
            self._settings = Settings(
                str(root), str(self._work), self._threads, self._plan.batch, place
            )
        return self._settings


def predictions() -> Json:
    import h2d
    import next_us
    import normalise
    import peers
    import step

    return {
        "normalise": normalise.PREDICTED,
        "h2d": h2d.PREDICTED,
        "next": next_us.PREDICTED,
        "step": step.PREDICTED,
        "peers": peers.PREDICTED,
    }


def write(results: Json, path: Path) -> None:
    import goals

    parts = {name: results[name] for name in PARTS if name in results}
    results["ratios"] = goals.ratios(parts)
    results["goals"] = goals.rows(parts)
    if results["plan"]["name"] == "rehearsal":
        for row in results["goals"]:
            row["met"] = None
    # Renamed when complete: the run may be cut off at any moment.
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(unfinished, path)


def summary(results: Json) -> str:
    lines = [f"{results['device']}, driver {results['driver']}, torch {results['torch']}"]
    for row in results["goals"]:
        value = "?" if row["value"] is None else f"{row['value']:.3f}"
        goal = "" if row["goal"] is None else f"{row['goal']} {row['limit']:g}"
        met = {True: "met", False: "NOT MET", None: ""}[row["met"]]
        remark = f"  ({row['remark']})" if row["remark"] else ""
        lines.append(f"{value:>9}  {goal:<14} {met:<8} {row['what']}{remark}")
    for name, each in results["ratios"].items():
        if isinstance(each, dict) and "speed" in each:
            lines.append(
                f"{each['speed']['median']:>9.2f}  times as fast as {name}, and "
                f"{each['cpu']['median']:.2f} times less CPU time"
            )
    if results["plan"]["name"] == "rehearsal":
        lines.append("A rehearsal: these figures mean nothing.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
