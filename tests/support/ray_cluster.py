"""A Ray cluster of several nodes on this machine, and what the tests make batches of there."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from fastloader import FastLoader
from support import PACKAGE_ROOT, SUPPORT, random_images

STORE = 80 << 20  # bytes; Ray refuses less than 75 MB
_LEAN = {"object_store_memory": STORE, "include_log_monitor": False}


@contextlib.contextmanager
def cluster_of(*nodes):
    """A cluster: a head with one processor, and a node with each of these options, two by default."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # The nodes' processes find what the tests import as this one does.
    before = os.environ.get("PYTHONPATH")
    paths = [str(PACKAGE_ROOT), str(SUPPORT), *filter(None, [before])]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), RAY_USAGE_STATS_ENABLED="0")
    # A node that was killed is known to be dead within a second or two.
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    # Nothing runs that no test needs: two processors are few for a cluster.
    quick["prestart_worker_first_driver"] = False
    head = {"num_cpus": 1, **_LEAN, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**head, "_system_config": {**quick, "health_check_initial_delay_ms": 0}},
    )
    try:
        for options in nodes:
            add_node(cluster, **options)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        while _shared:
            _shared.pop().close()
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def add_node(cluster, attempts=4, **options):
    """Adds a node, with two processors by default. Ray gives up on one that has not come up in 30
    seconds, as on a very busy machine."""
    while True:
        attempts -= 1
        try:
            return cluster.add_node(**{"num_cpus": 2, **_LEAN, **options})
        except Exception as error:
            if attempts == 0 or "timed out during startup" not in str(error):
                raise


# Actors take seconds to start, so the loaders of a module share theirs. (In a loader's place: it would
# end them when it is closed.)
_shared = []


@contextlib.contextmanager
def on_ray(dataset, size=4, workers=2, **options):
    """A loader with actors that other loaders had before."""
    from fastloader._core.sources.remote.actor_pool import ActorPool, RayCounts

    loader = FastLoader(dataset, size, num_workers=workers, worker_backend="ray", **options)
    remote, *_others = loader._runtime.sources
    if not _shared:
        _shared.append(ActorPool({"num_cpus": 1}, RayCounts()))
    pool = _shared[0]
    pool.counts = remote._counts = RayCounts()
    remote._pool = pool
    try:
        yield loader
    finally:
        remote._pool = None
        loader.close()


def counts(loader):
    return loader.stats()["ray"]


def living_actors():
    """The classes of the actors that Ray has, or is about to start."""
    from ray._private.state import actors  # ray.util.state needs the dashboard

    return [each["ActorClassName"] for each in actors().values() if each["State"] != "DEAD"]


class Drawing(Dataset):
    """Random pictures that are drawn anew at each look, by all three global generators."""

    def __init__(self, count=24):
        self.pictures = random_images(5, count, 3, 6, 5)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        noise = torch.randint(0, 9, (3, 6, 5), dtype=torch.uint8)
        return self.pictures[index] + noise, index + random.random() + np.random.rand()


class DrawingStream(IterableDataset):
    """The same as an iterable, split over workers."""

    def __init__(self, count=24):
        self.samples = Drawing(count)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for index in range(info.id, len(self.samples), info.num_workers):
            yield self.samples[index]


class Struck(Dataset):
    """Samples of ``dataset``. At the index ``at`` something strikes, as often as ``times`` says: it gets
    the number of the time."""

    def __init__(self, dataset, at, strike, folder, times=1):
        self.dataset, self.at, self.times = dataset, at, times
        self.strike, self.folder = strike, str(folder)

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        if index == self.at:
            for time_ in range(self.times):
                with contextlib.suppress(FileExistsError):
                    Path(self.folder, f"strike-{time_}").touch(exist_ok=False)
                    self.strike(time_)
                    break
        return self.dataset[index]


def die(_time):
    os.kill(os.getpid(), signal.SIGKILL)


class Gate:
    """Holds who comes until it is opened, from any process."""

    def __init__(self, folder):
        self.here, self.gone_on = str(folder / "here"), str(folder / "gone-on")

    def __call__(self, _time=0):
        import ray

        Path(self.here + ".part").write_text(ray.get_runtime_context().get_node_id())
        os.rename(self.here + ".part", self.here)
        while not os.path.exists(self.gone_on):
            time.sleep(0.01)

    def node(self):
        """The node of who came; None before."""
        return Path(self.here).read_text() if os.path.exists(self.here) else None

    def open(self):
        Path(self.gone_on).touch()
