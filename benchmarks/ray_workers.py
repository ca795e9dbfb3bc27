"""Batches from actors of a Ray cluster, which runs on this machine.

    python benchmarks/ray_workers.py [--repeats 5] [--batches 60] [--data DIR] [--link]

Four questions:

- Do two nodes make twice what one makes? Of a dataset that waits 20 ms for each sample, which needs no
  processor; 2 actors on each node.
- What does a batch cost more than from worker processes? 64 x 3 x 224 x 224 bytes out of memory, 2
  workers; the worker processes are spawned, since a process that is connected to Ray should not fork.
- How many bytes come for each batch, and how many are copied?
- With --data: how many pictures a second do 2 actors with one decode thread each make of photographs
  (RandomResizedCrop-224 + flip), beside 2 decode threads of this process, and at how many seconds of
  processor time? One machine cannot show how decoding scales over nodes.

And a calculation of how many pictures a second a link carries to one trainer, which --link prints alone.

Predicted: 1.9 x or more for two nodes; 1 ms more a batch, since Ray takes about 1 ms for a task, which
runs ahead, and the batch is copied once; as many bytes as the batch has.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

import torch
from measure import interleaved, ratio, write
from torch.utils.data import Dataset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

WAIT = 0.02  # seconds for a sample
STORE = 512 << 20  # bytes of Ray's memory on each node
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
    parser.add_argument("--out", help="the folder to write to (default: benchmarks/results)")
    arguments = parser.parse_args()
    if arguments.link:
        for name, rates in link().items():
            print(
                f"{name}: {rates['25 Gbit/s']:.0f} a second at 25 Gbit/s, "
                f"{rates['100 Gbit/s']:.0f} at 100"
            )
        return
    torch.set_num_threads(1)
    with cluster():
        results = {
            "link": link(),
            "nodes": nodes(arguments),
            "overhead": overhead(arguments),
        }
        if arguments.data:
            results["photographs"] = photographs(arguments)
    where = {} if arguments.out is None else {"folder": arguments.out}
    print(write("ray_workers", results, **where))


def link() -> dict[str, dict[str, float]]:
    """Pictures a second over a link to one trainer."""
    return {
        name: {f"{gbits} Gbit/s": USEFUL * gbits * 1e9 / 8 / size for gbits in (25, 100)}
        for name, size in PICTURES.items()
    }


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """A head without processors, and two nodes with two each."""
    import ray
    from ray.cluster_utils import Cluster

    folder = os.path.dirname(os.path.abspath(__file__))
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), RAY_USAGE_STATS_ENABLED="0")
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
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
    dataset = Pictures(64 * arguments.batches)
    common = {"persistent_workers": True}
    loaders = {
        "worker processes": FastLoader(
            dataset, 64, num_workers=2, multiprocessing_context="spawn", **common
        ),
        "actors": on_ray(dataset, 64, 2, **common),
    }
    timings = interleaved(
        {name: functools.partial(epoch, loader) for name, loader in loaders.items()},
        arguments.repeats,
        warm_up=1,
    )
    stats = loaders["actors"].stats()
    batches = sum(node["batches"] for node in stats["ray"]["nodes"].values())
    sent = stats["ray"]["received_bytes"] / batches
    for loader in loaders.values():
        loader.close()
    del loaders
    gc.collect()
    more = 1000 * (timings["actors"].median - timings["worker processes"].median)
    batch = 64 * (3 * 224 * 224 + 8)
    print(f"actors take {more:.2f} ms more a batch; {sent:.0f} bytes come for one of {batch}")
    return {
        "a batch": {name: each.as_json() for name, each in timings.items()},
        "ms more": more,
        "bytes of a batch": batch,
        "bytes received": sent,
        "bytes copied on the trainer": batch,
    }


def photographs(arguments: argparse.Namespace) -> dict[str, Any]:
    """Actors beside decode threads of this process, and the processor time of both."""
    crops = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = ImageFolder(os.path.abspath(arguments.data), crops)
    options = {"shuffle": True, "drop_last": True}
    loaders = {
        "decode threads": FastLoader(dataset, 16, num_workers=2, **options),
        "actors": on_ray(dataset, 16, 2, **options),
    }
    timings = interleaved(
        {name: functools.partial(epoch, loader) for name, loader in loaders.items()},
        arguments.repeats,
        warm_up=1,
    )
    stats = loaders["actors"].stats()["ray"]["nodes"].values()
    made = sum(node["batches"] for node in stats)
    busy = sum(node["busy_s"] for node in stats) / (16 * made)
    for loader in loaders.values():
        loader.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    rates = {name: 16 / each.median for name, each in timings.items()}
    print(f"pictures a second: {rates}; an actor is at a picture for {1000 * busy:.2f} ms")
    return {
        "pictures a second": rates,
        "ms of an actor for a picture": 1000 * busy,
        "processor seconds of this process": used.ru_utime + used.ru_stime,
    }


if __name__ == "__main__":
    main()
