"""Actors and nodes that die, nodes that are slow or have no files, memory that is full, loops that end
early: nothing is lost, nothing comes twice, nothing hangs, nothing is left."""

import math
import signal
import threading

import pytest
import torch
from ray_cluster import (
    Drawing,
    DrawingStream,
    Gate,
    Struck,
    add_node,
    cluster_of,
    counts,
    die,
    living_actors,
    on_ray,
)
from torch.utils.data import Dataset

from fastloader import Error, FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, Stream, eventually, random_images, same

pytestmark = pytest.mark.processes

COUNT = 24


@pytest.fixture(scope="module")
def of_processes():
    """What worker processes make of these datasets. Made before there is a connection to Ray."""
    made = {}
    for dataset in (Drawing(COUNT), DrawingStream(COUNT)):
        torch.manual_seed(3)
        with FastLoader(dataset, 4, num_workers=2) as loader:
            made[type(dataset)] = [[leaf.clone() for leaf in batch] for batch in loader]
    return made


@pytest.fixture(scope="module")
def cluster(of_processes):
    with cluster_of({"resources": {"spare": 2}}) as made:
        yield made


@pytest.fixture(scope="module")
def another_node(cluster):
    """Of the module, since either of two nodes may be the one that stays."""
    add_node(cluster, resources={"spare": 2})


class StruckStream(DrawingStream):
    """Strikes before the sample of this index, the first time."""

    def __init__(self, at, strike, folder):
        super().__init__(COUNT)
        self.samples = Struck(self.samples, at, strike, folder)


@pytest.fixture
def no_guests(cluster, monkeypatch):
    """A worker that was a guest, and goes home just before its host dies, loses nothing with it
    (test_crew.py). There are guests again from a call of this on."""
    from fastloader._core.sources.remote import crew  # which imports Ray

    monkeypatch.setattr(crew, "PATIENCE", math.inf)
    return monkeypatch.undo


@pytest.mark.parametrize("at", [0, 9])
def test_an_actor_that_dies_is_replaced(cluster, of_processes, tmp_path, no_guests, at):
    """Batches that died with it are made again, from where its generators were."""
    torch.manual_seed(3)
    with on_ray(Struck(Drawing(COUNT), at, die, tmp_path), 4) as loader:
        same([list(batch) for batch in loader], of_processes[Drawing])
        seen = counts(loader)
        # As many as were under way there: two at most, of its worker.
        assert seen["replaced"] == 1 and 1 <= seen["remade"] <= 2
        assert sum(node["batches"] for node in seen["nodes"].values()) == COUNT // 4


def test_an_iterable_dataset_is_read_again(cluster, of_processes, tmp_path):
    torch.manual_seed(3)
    with on_ray(StruckStream(17, die, tmp_path), 4) as loader:
        same([list(batch) for batch in loader], of_processes[DrawingStream])
        assert counts(loader)["replaced"] == 1


def test_a_node_that_dies(cluster, another_node, of_processes, tmp_path, no_guests):
    """Its actors come up again elsewhere, and make what was lost."""
    nodes = {each.node_id: each for each in cluster.worker_nodes}
    gate = Gate(tmp_path)
    # The node goes at which an actor has come to the gate.
    killer = threading.Thread(target=_kill_the_node, args=(cluster, nodes, gate, no_guests))
    wanted = {"resources": {"spare": 1}, "scheduling_strategy": "SPREAD"}
    torch.manual_seed(3)
    dataset = Struck(Drawing(COUNT), 9, gate, tmp_path)
    options = {"num_workers": 2, "worker_backend": "ray", "ray_options": wanted}
    with FastLoader(dataset, 4, **options) as loader:
        killer.start()
        made = [list(batch) for batch in loader]
        killer.join()
        same(made, of_processes[Drawing])
        seen = counts(loader)
    assert seen["replaced"] >= 1 and seen["remade"] >= 1


def _kill_the_node(cluster, nodes, gate, then):
    there = eventually(gate.node, lambda: "the gate was reached", 120)
    cluster.remove_node(nodes[there], allow_graceful=False)
    then()  # the node that stays has room for one actor


def test_a_batch_that_nothing_survives_is_an_error(cluster, tmp_path):
    with on_ray(Struck(Pictures(COUNT), 9, die, tmp_path, times=20), 4) as loader:
        iterator = iter(loader)
        got = [next(iterator)[1].tolist() for _ in range(2)]
        with pytest.raises(Error, match="3 Ray actors died one after the other"):
            next(iterator)
        got += [labels.tolist() for _, labels in iterator]
    assert got == [list(range(n, n + 4)) for n in (0, 4, 12, 16, 20)]


def test_a_slow_worker_keeps_the_order(cluster, tmp_path):
    gate = Gate(tmp_path)

    def open_it():
        eventually(gate.node, lambda: "the gate was reached", 120)
        gate.open()

    opener = threading.Thread(target=open_it)
    with on_ray(Struck(Pictures(COUNT), 0, gate, tmp_path), 4) as loader:
        opener.start()
        assert [labels[0].item() for _, labels in loader] == [0, 4, 8, 12, 16, 20]
        opener.join()


class Large(Dataset):
    """Samples of two megabytes."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((2 << 20,), index, dtype=torch.uint8), index


def answers(loader):
    """How many have come and wait for the loop."""
    (iterator,) = loader._runtime.fallback._iterators
    return iterator._worker_result_queue.qsize()


@pytest.mark.slow
def test_more_under_way_than_rays_memory_holds(cluster):
    """Ray spills to disk. 16 batches of 8 MB are under way while the loop does not take any."""
    with on_ray(Large(), 4, prefetch_factor=8) as loader:
        iterator = iter(loader)
        first = next(iterator)
        seen = {}

        def many():
            seen.update(answers=answers(loader))
            return seen["answers"] >= 14

        eventually(many, lambda: seen, 180)
        numbers = [*first[1].tolist()]
        for images, labels in iterator:
            assert (images == labels.to(torch.uint8)[:, None]).all()
            numbers += labels.tolist()
    assert numbers == list(range(64))


def test_a_loop_that_breaks_off_begins_again(cluster):
    with on_ray(Pictures(COUNT), 4, prefetch_factor=3) as loader:
        for taken in (1, 3):
            for number, (_, labels) in enumerate(loader, 1):
                assert labels[0] == 4 * (number - 1)
                if number == taken:
                    break
        assert [labels[0].item() for _, labels in loader] == [0, 4, 8, 12, 16, 20]


def test_a_timeout(cluster, tmp_path):
    gate = Gate(tmp_path)
    with on_ray(Struck(Pictures(COUNT), 4, gate, tmp_path), 4, timeout=1) as loader:
        loader.timeout = 60  # for the actors to start
        iterator = iter(loader)
        assert next(iterator)[1][0] == 0
        eventually(gate.node, lambda: "the gate was reached", 60)
        iterator._timeout = 0.3
        with pytest.raises(RuntimeError, match=r"timed out after 0\.3 s"):
            next(iterator)
        gate.open()
        iterator._timeout = 60
        assert [labels[0].item() for _, labels in iterator] == [4, 8, 12, 16, 20]


def test_ctrl_c_loses_nothing(cluster, tmp_path):
    gate = Gate(tmp_path)
    with on_ray(Struck(Pictures(COUNT), 4, gate, tmp_path), 4) as loader:
        iterator = iter(loader)
        got = [next(iterator)[1].tolist()]
        eventually(gate.node, lambda: "the gate was reached", 60)
        main = threading.main_thread().ident
        timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        timer.join()
        gate.open()
        got += [labels.tolist() for _, labels in iterator]
    assert got == [list(range(n, n + 4)) for n in range(0, COUNT, 4)]


class Lacking(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 4

    def __getitem__(self, index):
        with open(self.path, "rb") as file:
            return file.read()


def test_a_file_that_a_node_does_not_have(cluster, tmp_path):
    path = str(tmp_path / "elsewhere" / "data.bin")
    with on_ray(Lacking(path), 2) as loader:
        with pytest.raises(FileNotFoundError) as caught:
            next(iter(loader))
    text = str(caught.value)
    assert "has no" in text and path in text and "ray_options={'resources'" in text
    assert f"on node {cluster.head_node.node_ip_address} (" in text
    with on_ray(Lacking("data.bin"), 2) as loader:
        with pytest.raises(FileNotFoundError, match="give the dataset an absolute path"):
            next(iter(loader))


@pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")
def test_a_folder_of_pictures_that_a_node_does_not_have(cluster, tmp_path):
    from pictures import plain_folder

    root = tmp_path / "photos"
    root.mkdir()
    plain_folder(root, 4, classes=1)
    dataset = ImageFolder(str(root), T.Compose([T.Resize((8, 8))]))
    root.rename(tmp_path / "moved")
    # Otherwise each picture would be a bad one, of which all may be skipped.
    with on_ray(dataset, 2, on_error="skip") as loader:
        with pytest.raises(FileNotFoundError, match=f"has no '{root}"):
            next(iter(loader))


def test_closing_leaves_no_actor(cluster):
    """A loader of its own, since those of other tests keep theirs."""
    before = living_actors().count("BatchActor")
    loader = FastLoader(Pictures(8), 4, num_workers=1, worker_backend="ray")
    assert len(list(loader)) == 2 and len(list(loader)) == 2
    assert living_actors().count("BatchActor") == before + 1  # kept from epoch to epoch
    loader.close()
    eventually(lambda: living_actors().count("BatchActor") == before, living_actors, 60)
    iterator = iter(loader)  # begins anew
    next(iterator)
    del loader, iterator  # and ends without being closed
    eventually(lambda: living_actors().count("BatchActor") == before, living_actors, 60)


def test_a_worker_without_room_is_a_guest(cluster, monkeypatch):
    """Ray has room for three actors. The fourth worker is the guest of one of them."""
    from fastloader._core.sources.remote import crew

    monkeypatch.setattr(crew, "PATIENCE", 0.2)
    with on_ray(Stream(COUNT), 3, workers=4) as loader:
        numbers = sorted(torch.cat([labels for _, labels in loader]).tolist())
        assert numbers == list(range(COUNT))
        assert counts(loader)["moved"] >= 1 and counts(loader)["replaced"] == 0


def test_the_report_knows_the_way(cluster):
    with on_ray(Pictures(COUNT), 4, device="cpu", mean=MEAN, std=STD) as loader:
        for _ in loader:
            pass
        report = loader.report()
    made = [stage for name, stage in report.stages.items() if name.startswith("make on ")]
    assert sum(stage.count for stage in made) == COUNT // 4
    assert {stage.where for stage in made} == {
        f"actors on {node}" for node in counts(loader)["nodes"]
    }
    assert report.stages["transfer"].count == COUNT // 4
    assert list(report.stages)[-1] == "wait" and "make on " in str(report)
    assert counts(loader)["received_bytes"] > random_images(0, COUNT, 3, 5, 7).numel()
