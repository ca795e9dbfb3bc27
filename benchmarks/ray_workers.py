"""Batches from actors of a Ray cluster, which runs on this machine.

    python benchmarks/ray_workers.py [--repeats 5] [--batches 60] [--data DIR] [--link]

Four questions:

- Do two nodes make twice what one makes? Of a dataset that waits 20 ms for each sample, which needs no
  processor; 2 actors on each node.
- What does a batch cost more than from worker processes? 64 x 3 x 224 x 224 bytes out of memory, 2
  workers; the worker processes are spawned, since a process that is connected to Ray should not fork.
  With actors on the trainer's node and on another one, which here is reached over the loopback device.
  With the ring and without. Behind steps that leave the processors to the loader, as a GPU does, and one
  after the other, where all processors are busy with copying.
- How many bytes come for each batch, and how many are copied into the ring?
- With --data: how many pictures a second do 2 actors with one decode thread each make of photographs
  (RandomResizedCrop-224 + flip), beside 2 decode threads of this process, and at how many seconds of
  processor time? One machine cannot show how decoding scales over nodes.

And a calculation of how many pictures a second a link carries to one trainer, which --link prints alone.

Predicted: 1.9 x or more for two nodes; less than 1 ms more a batch behind steps, since Ray's work and
the copy run ahead of the loop; as many bytes as the batch has, each copied once.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, interleaved, ratio, write
from torch.utils.data import Dataset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

WAIT = 0.02  # seconds for a sample
STORE = 512 << 20  # bytes of Ray's memory on each node
STEP = 0.03  # seconds of a training step
STEPS = f"behind steps of {1000 * STEP:.0f} ms"
# Without a GPU the ring is the one of the engine that takes ordinary memory for a device's.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PLACES = {"here": "the trainer's node", "one": "another node"}
USEFUL = 0.9  # the share of a link that carries batches
PICTURES = {
    "224 x 224, uint8": 3 * 224 * 224,
    "224 x 224, float32": 4 * 3 * 224 * 224,
    "384 x 384, uint8": 3 * 384 * 384,
    "512 x 512, uint8": 3 * 512 * 512,
}


class Waiting(Dataset[int]):
    """Samples that take their time and no processor."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        time.sleep(WAIT)
        return index


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Bytes out of memory, as benchmarks/workers.py has them."""

    def __init__(self, count: int) -> None:
        self.images = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index % 64], index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, default=60, help="of an epoch (default: 60)")
    parser.add_argument("--data", help="a folder of class folders with photographs")
    parser.add_argument("--link", action="store_true", help="only the calculation")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder to write to")
    arguments = parser.parse_args()
    if arguments.link:
        for name, rates in link().items():
            print(
                f"{name}: {rates['25 Gbit/s']:.0f} a second at 25 Gbit/s, "
                f"{rates['100 Gbit/s']:.0f} at 100"
            )
        return
    torch.set_num_threads(1)
    if DEVICE == "cpu":
        os.environ.setdefault("FASTLOADER_BACKEND", "host")
    with cluster():
        results = {
            "link": link(),
            "nodes": nodes(arguments),
            "overhead": overhead(arguments),
        }
        if arguments.data:
            results["photographs"] = photographs(arguments)
    print(write("ray_workers", results, arguments.out))


def link() -> dict[str, dict[str, float]]:
    """Pictures a second over a link to one trainer."""
    return {
        name: {f"{gbits} Gbit/s": USEFUL * gbits * 1e9 / 8 / size for gbits in (25, 100)}
        for name, size in PICTURES.items()
    }


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """A head, which is the trainer's node, and two more with two processors each."""
    import ray
    from ray.cluster_utils import Cluster

    folder = os.path.dirname(os.path.abspath(__file__))
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), RAY_USAGE_STATS_ENABLED="0")
    head = {"num_cpus": 2, "object_store_memory": STORE, "resources": {"here": 2}}
    head["include_dashboard"] = False
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for name in ("one", "two"):
            made.add_node(num_cpus=2, object_store_memory=STORE, resources={name: 2, "any": 2})
        ray.init(address=made.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def on_ray(dataset: Any, batch: int, workers: int, resource_name: str = "any", **more: Any) -> Any:
    options = {"num_cpus": 1, "resources": {resource_name: 1}}
    return FastLoader(
        dataset, batch, num_workers=workers, worker_backend="ray", ray_options=options, **more
    )


def epoch(loader: Any) -> float:
    """Seconds for a batch, behind the first ones: what the beginning takes is another question."""
    iterator, count = iter(loader), 0
    ahead = loader.num_workers * 2
    for _ in range(ahead):
        next(iterator)
    begun = time.perf_counter()
    for _batch in iterator:
        count += 1
    return (time.perf_counter() - begun) / count


def nodes(arguments: argparse.Namespace) -> dict[str, Any]:
    """One node beside two, of a dataset that waits."""
    count = 4 * arguments.batches
    made = {
        "one node": on_ray(Waiting(count), 4, 2, "one"),
        "two nodes": on_ray(Waiting(count), 4, 4),
    }
    found = {}
    # One after the other, since all processors of the first node are in use by either.
    for name, loader in made.items():
        run = functools.partial(epoch, loader)
        found[name] = interleaved({name: run}, arguments.repeats, warm_up=1)[name]
        stats = loader.stats()["ray"]
        print(name, {node: each["batches"] for node, each in stats["nodes"].items()})
        loader.close()
    gain = ratio(found["one node"], found["two nodes"])
    print(f"two nodes make {gain['median']:.2f} x what one makes")
    return {"a batch": {name: each.as_json() for name, each in found.items()}, "gain": gain}


def overhead(arguments: argparse.Namespace) -> dict[str, Any]:
    """Actors beside worker processes, of batches that cost next to nothing to make."""
    found = {}
    for place in ("here", "one"):
        for delivery, options in {
            "as they are": {},
            "through the ring": {"device": DEVICE},
        }.items():
            name = f"actors on {PLACES[place]}, batches {delivery}"
            found[name] = beside_processes(arguments, place, options)
            print(f"{name}: {found[name]['ms more']}, {found[name]['bytes']}")
    return found


def beside_processes(
    arguments: argparse.Namespace, place: str, options: dict[str, Any]
) -> dict[str, Any]:
    dataset = Pictures(64 * arguments.batches)
    common = {"persistent_workers": True, **options}
    loaders = {
        "worker processes": FastLoader(
            dataset, 64, num_workers=2, multiprocessing_context="spawn", **common
        ),
        "actors": on_ray(dataset, 64, 2, place, **common),
    }
    found = {}
    for name, measured in {STEPS: steps, "one after the other": epoch}.items():
        runs = {each: functools.partial(measured, loader) for each, loader in loaders.items()}
        found[name] = interleaved(runs, arguments.repeats, warm_up=2)
    stats = loaders["actors"].stats()
    batches = sum(node["batches"] for node in stats["ray"]["nodes"].values())
    moved = {"of a batch": 64 * (3 * 224 * 224 + 8)}
    moved["received"] = stats["ray"]["received_bytes"] / batches
    if "ring" in stats:
        moved["copied"] = stats["ring"]["copied_bytes"] / stats["ring"]["delivered"]
    for loader in loaders.values():
        loader.close()
    more = {
        name: 1000 * (each["actors"].median - each["worker processes"].median)
        for name, each in found.items()
    }
    seconds = {
        name: {which: timing.as_json() for which, timing in each.items()}
        for name, each in found.items()
    }
    return {"seconds of next() for a batch": seconds, "ms more": more, "bytes": moved}


def steps(loader: Any) -> float:
    """Median seconds of ``next()`` behind steps that use no processor, as those of a GPU."""
    iterator, waits = iter(loader), []
    for _ in range(loader.num_workers * 2):
        next(iterator)
    while True:
        time.sleep(STEP)
        begun = time.perf_counter()
        if next(iterator, None) is None:
            return statistics.median(waits)
        waits.append(time.perf_counter() - begun)


def photographs(arguments: argparse.Namespace) -> dict[str, Any]:
    """Actors beside decode threads of this process, and the processor time of both."""
    crops = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = ImageFolder(os.path.abspath(arguments.data), crops)
    options = {"shuffle": True, "drop_last": True}
    loaders = {
        "decode threads": FastLoader(dataset, 16, num_workers=2, **options),
        "actors": on_ray(dataset, 16, 2, "here", **options),
    }
    used: dict[str, list[float]] = {name: [] for name in loaders}
    runs = {
        name: functools.partial(with_processors, loader, used[name])
        for name, loader in loaders.items()
    }
    timings = interleaved(runs, arguments.repeats, warm_up=1)
    for loader in loaders.values():
        loader.close()
    rates = {name: 16 / each.median for name, each in timings.items()}
    seconds = {name: statistics.median(each) for name, each in used.items()}
    print(f"pictures a second: {rates}; processor seconds for 1000: {seconds}")
    return {"pictures a second": rates, "processor seconds for 1000 pictures": seconds}


def with_processors(loader: Any, used: list[float]) -> float:
    """As `epoch`; adds to ``used`` the processor seconds of this process and of Ray's for 1000 pictures,
    over a whole epoch."""
    before = processor_seconds()
    seconds = epoch(loader)
    used.append(1000 * (processor_seconds() - before) / (16 * len(loader)))
    return seconds


def processor_seconds() -> float:
    """Of this process and of all that descend from it, as the nodes and the actors do."""
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
    mine, new = set(), {os.getpid()}
    while new:
        mine |= new
        new = {process for process, parent in parents.items() if parent in new}
    return sum(ticks[process] for process in mine) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
