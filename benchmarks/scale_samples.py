"""Memory and start-up by the number of samples: the order of a ShardwiseSampler, and the index of tar
shards. ::

    python benchmarks/scale_samples.py --out benchmarks/results --folder /fast/disk --members 1000000

Each row is a process of its own. The orders are of synthetic indices: a table of shards without a file,
64 ranks, resumed in the middle of an epoch. The tar shards are real: ``--members`` small files, a
sample each, written into ``--folder``. ``private`` is the memory of no file that a process has alone
(Anonymous of smaps_rollup), beyond what it had before the dataset was made; ``peak`` is the most that it
has had resident. Below 1 GiB, about a million members, each process has an index of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import write

RANKS = 64
ORDERS = [
    (10_000, 100),
    (1_000_000, 1000),
    (100_000_000, 1000),
    (100_000_000, 100_000),
]


class Local:
    """A shard that lies on this machine."""


def private() -> int:
    """Returns the bytes of memory that only this process has, and that are of no file."""
    found = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = [each for each in found if each.startswith("Anonymous:")]
    return int(line.split()[1]) * 1024


def peak() -> int:
    (line,) = [
        each
        for each in Path("/proc/self/status").read_text().splitlines()
        if each.startswith("VmHWM:")
    ]
    return int(line.split()[1]) * 1024


def trim() -> None:
    """Gives freed memory back, which is no cost of what is measured next."""
    ctypes.CDLL(None).malloc_trim(0)


# ---- One process each.


def measure_order(samples: int, each: int) -> dict[str, Any]:
    from fastloader.datasets import FileSpans, ShardwiseSampler, TarImages

    dataset: Any = TarImages.__new__(TarImages)
    dataset._shards = [Local()] * (samples // each)
    starts = [0, *np.cumsum(np.full(samples // each, each)).tolist()]
    dataset.spans = FileSpans(dataset._shards, starts, None, None)
    dataset.offsets = range(samples)
    before, begun = peak(), time.perf_counter()
    sampler = ShardwiseSampler(dataset, RANKS, RANKS // 2, seed=1)
    received = samples // RANKS // 4
    history = [[RANKS, received], [RANKS - 16, received]]
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "history": history})
    next(iter(sampler))
    return {
        "first_index_seconds": time.perf_counter() - begun,
        "peak_bytes": peak() - before,
    }


def measure_shards(pattern: str) -> dict[str, Any]:
    """Makes the dataset, and the first batch of a loader."""
    from fastloader import FastLoader
    from fastloader import transforms as T
    from fastloader.datasets import TarImages

    trim()
    before, begun = private(), time.perf_counter()
    dataset = TarImages(pattern, T.Compose([T.Resize((8, 8))]))
    made = time.perf_counter() - begun
    loader = FastLoader(dataset, 64)
    next(iter(loader))
    trim()
    return {
        "samples": len(dataset),
        "dataset_seconds": made,
        "first_batch_seconds": time.perf_counter() - begun,
        "private_bytes_a_sample": (private() - before) / len(dataset),
        "shared": dataset._shared,
    }


# ---- Real shards, of small members.

_SHARD = 10_000  # members
_PIXEL = b"P6 1 1 255\n\x01\x02\x03"


def write_shards(folder: Path, members: int) -> None:
    """Writes shards whose samples are pictures of one pixel: a kibibyte each."""
    block = np.zeros((_SHARD, 1024), np.uint8)
    for shard in range(-(-members // _SHARD)):
        count = min(_SHARD, members - shard * _SHARD)
        for number in range(count):
            block[number] = np.frombuffer(member(f"{shard:05}-{number:05}.ppm"), np.uint8)
        with open(folder / f"x-{shard:05}.tar", "wb") as file:
            file.write(block[:count].data)
            file.write(bytes(1024))


def member(name: str) -> bytes:
    header = bytearray(512)
    header[: len(name)] = name.encode()
    header[100:108], header[108:116], header[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    header[124:136], header[136:148] = b"%011o\0" % len(_PIXEL), b"%011o\0" % 0
    header[148:156], header[156:157] = b" " * 8, b"0"
    header[257:265] = b"ustar\00000"
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + _PIXEL.ljust(512, b"\0")


# ---- The runner.


def run(*arguments: str, cache: str = "") -> dict[str, Any]:
    program = [sys.executable, __file__, "--process", *arguments]
    environment = {**os.environ, **({"FASTLOADER_CACHE": cache} if cache else {})}
    out = subprocess.run(program, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--folder", type=Path, help="where the tar shards are written")
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        kind, *rest = options.process
        found = measure_shards(*rest) if kind == "shards" else measure_order(*map(int, rest))
        print(json.dumps(found))
        return
    orders = []
    for samples, each in ORDERS:
        row = {"samples": samples, "samples_a_shard": each, "ranks": RANKS}
        orders.append({**row, **run("order", str(samples), str(each))})
        print(orders[-1], flush=True)
    folder = Path(tempfile.mkdtemp(prefix="fastloader-scale-", dir=options.folder))
    try:
        write_shards(folder, options.members)
        pattern, cache = str(folder / "x-*.tar"), str(folder / "cache")
        shards = {}
        for name in ("no index", "the shards' indices", "the machine's index"):
            shards[name] = run("shards", pattern, cache=cache)
            if name == "no index":
                shutil.rmtree(folder / "cache")
            print(name, shards[name], flush=True)
    finally:
        shutil.rmtree(folder)
    result = {"orders": orders, "members": options.members, "shards": shards}
    write("scale-samples", result, options.out)


if __name__ == "__main__":
    main()
