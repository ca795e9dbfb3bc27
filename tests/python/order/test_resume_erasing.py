"""state_dict() of loaders that erase and mix: the boxes, partners and targets of what follows are those
of a run that never stopped, in that epoch and the next ones."""

import copy
import itertools
import json
import pickle
import random
import time

import pytest
import torch
from augmenting import CLASSES, mixing
from pictures import import_torchvision, plain_folder
from torch.utils.data import TensorDataset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader.compat import timm
from fastloader.compat.timm.loader import ErasingLoader
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, Stream, random_images, same

pytestmark = pytest.mark.covering

COUNT = 12
BATCH = 2
ERASING = RandomErasing(0.9, mode="pixel", max_count=3)


@pytest.fixture(scope="module")
def crops(tmp_path_factory):
    root = plain_folder(tmp_path_factory.mktemp("erased"), COUNT, classes=CLASSES)
    return ImageFolder(str(root), T.Compose([T.RandomResizedCrop(9), T.RandomHorizontalFlip()]))


@pytest.fixture
def dataset_of(crops):
    arrays = TensorDataset(random_images(5, COUNT, 3, 9, 9), torch.arange(COUNT) % CLASSES)
    return {
        "arrays": arrays,
        "pictures": crops,
        "python": Pictures(COUNT, (9, 9)),
        "iterable": Stream(COUNT),
    }


KINDS = ["arrays", "pictures", "python", "iterable"]


def maker(way, dataset, workers=0, mixed=None, **options):
    def make():
        order = {} if isinstance(dataset, Stream) else {"shuffle": True}
        given = {**order, "num_workers": workers, **way.options, **options}
        loader = ErasingLoader(dataset, BATCH, mean=MEAN, std=STD, random_erasing=ERASING, **given)
        if mixed is not None:
            loader._runtime.delivery.augment(Augmentation(ERASING, mixed))
        return loader

    return make


def batches_of(loader, count=None):
    with_count = itertools.islice(iter(loader), count)
    return [[each.clone() for each in batch] for batch in with_count]


def all_epochs(make, seed, epochs):
    torch.manual_seed(seed)
    with make() as loader:
        return [batches_of(loader) for _ in range(epochs)]


def wait_until(condition, what):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def stopped(make, seed, epochs, received):
    """Runs for ``epochs`` epochs and ``received`` batches, None: without iter(). Returns the state and
    that of torch's generator."""
    torch.manual_seed(seed)
    with make() as loader:
        for _ in range(epochs):
            list(loader)
        if received is not None:
            iterator = iter(loader)
            for _ in range(received):
                next(iterator)
            if loader.stats()["path"] == "engine" and loader.num_workers and received < 3:
                draws = iterator._epoch.draws
                wait_until(lambda: draws.samples > received * BATCH, "nothing was read ahead")
        state = loader.state_dict()
    assert pickle.loads(pickle.dumps(state)) == state
    return json.loads(json.dumps(state)), torch.get_rng_state()


def resumed(make, state, users, epochs):
    torch.manual_seed(random.randrange(1 << 30))
    with make() as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        torch.set_rng_state(users)
        return [batches_of(loader) for _ in range(epochs)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_boxes_are_those_of_a_run_that_never_stopped(way, dataset_of, kind, workers):
    make = maker(way, dataset_of[kind], workers)
    seed = random.randrange(1 << 30)
    wanted = all_epochs(make, seed, 3)
    assert not torch.equal(wanted[0][0][0], wanted[1][0][0])
    for received in (0, 1, 3, COUNT // BATCH):
        got = resumed(make, *stopped(make, seed, 1, received), 2)
        same(got, [wanted[1][received:], wanted[2]])
    same(resumed(make, *stopped(make, seed, 1, None), 2), wanted[1:])


@pytest.mark.parametrize("mode", ["batch", "pair", "elem", "half"])
def test_so_are_partners_and_targets(way, dataset_of, mode):
    mixed = mixing(mode, before_normalize=mode == "half")
    for workers in (0, 2):
        make = maker(way, dataset_of["arrays"], workers, mixed)
        wanted = all_epochs(make, 4, 2)
        same(resumed(make, *stopped(make, 4, 0, 2), 2), [wanted[0][2:], wanted[1]])


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_with_persistent_workers(way, dataset_of, kind):
    make = maker(way, dataset_of[kind], 2, persistent_workers=True)
    wanted = all_epochs(make, 8, 3)
    for received in (0, 2):
        same(resumed(make, *stopped(make, 8, 1, received), 2), [wanted[1][received:], wanted[2]])


def test_on_another_way_with_other_workers(enter_way, dataset_of):
    """What goes on is the epoch, not the way that it came."""
    cpu = enter_way("cpu")
    wanted = all_epochs(maker(cpu, dataset_of["python"]), 8, 2)
    state = stopped(maker(cpu, dataset_of["python"], 2), 8, 0, 2)
    for name in ("twin", "streams", "pure"):
        make = maker(enter_way(name), dataset_of["python"], 1)
        same(resumed(make, *state, 2), [wanted[0][2:], wanted[1]])


@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_at_every_batch(way, dataset_of, workers):
    """Each process takes one batch: two epochs and their ends."""
    make = maker(way, dataset_of["arrays"], workers)
    wanted = all_epochs(make, 6, 2)
    torch.manual_seed(6)
    got = [[]]
    state, users = {}, torch.get_rng_state()
    while len(got) < 3:
        torch.manual_seed(random.randrange(1 << 30))
        with make() as loader:
            loader.load_state_dict(state)
            torch.set_rng_state(users)
            batch = next(iter(loader), None)
            if batch is None:
                got.append([])  # and the state that follows is one between two epochs
            else:
                got[-1].append([each.clone() for each in batch])
            state, users = json.loads(json.dumps(loader.state_dict())), torch.get_rng_state()
    same(got[:2], wanted)


class Bad(Pictures):
    """Some samples cannot be read, some have another form, which refuses their batch."""

    def __getitem__(self, index):
        if index == 3:
            raise ValueError("sample 3")
        if index == 6:
            return self.images[6].float(), index
        if index == 7:
            return self.images[7].float(), index
        return super().__getitem__(index)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
def test_behind_errors_in_the_place_of_batches(way, workers):
    def run(loader, stop=None):
        """What came, None for an error."""
        iterator, got = iter(loader), []
        while len(got) != stop:
            try:
                got.append([each.clone() for each in next(iterator)])
            except StopIteration:
                break
            except (ValueError, TypeError):
                got.append(None)
        return got

    def make():
        options = {"num_workers": workers, "mean": MEAN, "std": STD, **way.options}
        return ErasingLoader(Bad(COUNT), BATCH, random_erasing=ERASING, **options)

    torch.manual_seed(2)
    with make() as loader:
        wanted = run(loader)
    assert [each is None for each in wanted] == [False, True, False, True, False, False]
    for stop in range(1, 6):
        torch.manual_seed(2)
        with make() as loader:
            iterator = iter(loader)
            for number in range(stop):
                if wanted[number] is None:
                    with pytest.raises((ValueError, TypeError)):
                        next(iterator)
                else:
                    next(iterator)
            state, users = loader.state_dict(), torch.get_rng_state()
        with make() as fresh:
            fresh.load_state_dict(state)
            torch.set_rng_state(users)
            got = run(fresh)
        assert [each is None for each in got] == [each is None for each in wanted[stop:]]
        same([each for each in got if each], [each for each in wanted[stop:] if each])


def test_ahead_of_the_loop_through_streams(enter_way, crops):
    """A batch is always in flight there while the loop has another."""
    make = maker(enter_way("streams"), crops)
    wanted = all_epochs(make, 3, 1)[0]
    torch.manual_seed(3)
    with make() as loader:
        iterator = iter(loader)
        for received in range(1, 4):
            next(iterator)
            assert iterator._draws.samples == (received + 1) * BATCH
            assert loader.state_dict()["augmentation"]["samples"] == received * BATCH
        state, users = loader.state_dict(), torch.get_rng_state()
    same(resumed(make, state, users, 1), [wanted[3:]])


@pytest.mark.parametrize("lacks", ["augmentation", "samples"])
def test_a_state_that_was_saved_before(way, dataset_of, lacks):
    """Without the key the rest of the epoch is there, and erased anew."""
    make = maker(way, dataset_of["python"])
    wanted = all_epochs(make, 5, 1)[0]
    state, users = stopped(make, 5, 0, 2)
    if lacks == "augmentation":
        del state["augmentation"]
    else:  # as versions had it that drew by the batch
        state["augmentation"]["batch"] = state["augmentation"].pop("samples") // BATCH
    (got,) = resumed(make, state, users, 1)
    assert [batch[1].tolist() for batch in got] == [batch[1].tolist() for batch in wanted[2:]]
    assert not torch.equal(got[0][0], wanted[2][0])
    (again,) = resumed(make, state, users, 1)
    same(again, got)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_of_a_loader_go_on_as_well(way, dataset_of, copied):
    make = maker(way, dataset_of["arrays"])
    wanted = all_epochs(make, 9, 2)
    state, users = stopped(make, 9, 0, 3)
    loader = make()
    loader.load_state_dict(state)
    with copied(loader) as other:
        torch.set_rng_state(users)
        same([batches_of(other), batches_of(other)], [wanted[0][3:], wanted[1]])


def test_a_rest_that_nobody_wants(way, dataset_of):
    """A break, then the next epoch; and behind the state iter() twice, of which the second begins it."""
    make = maker(way, dataset_of["arrays"], generator=torch.Generator())
    torch.manual_seed(7)
    with make() as loader:
        batches_of(loader, 3)
        state, users = loader.state_dict(), torch.get_rng_state()
        wanted = batches_of(loader)
    with make() as fresh:
        fresh.load_state_dict(state)
        torch.set_rng_state(users)
        iter(fresh)
        same(batches_of(fresh), wanted)


@pytest.fixture
def one_rank():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_state_of_every_rank_has_no_seed_of_one(way, dataset_of, one_rank):
    """All ranks have the run's seed, and go on from what they have received together."""
    make = maker(way, dataset_of["arrays"], distributed="pad")
    wanted = all_epochs(make, 3, 2)
    state, users = stopped(make, 3, 0, 2)
    assert state["augmentation"] == {"epoch": 0, "seed": None, "samples": 0}
    same(resumed(make, state, users, 2), [wanted[0][2:], wanted[1]])


@pytest.mark.parametrize("prefetched", [False, True])
def test_create_loader(way, tmp_path, prefetched):
    if way.name == "pure":
        import_torchvision()
    folder = str(plain_folder(tmp_path / "pictures", COUNT, classes=3))

    def make():
        # No crops, since timm's transforms in Python draw them from a generator that nobody saves.
        options = {"scale": (1, 1), "ratio": (1, 1), "hflip": 0.0, "color_jitter": None}
        loader = timm.create_loader(
            timm.ImageDataset(folder), 16, BATCH, is_training=True, re_prob=1.0, re_mode="pixel",
            use_prefetcher=prefetched, device=torch.device("cpu"), num_workers=0, **options,
        )  # fmt: skip
        return loader, loader.loader if prefetched else loader

    torch.manual_seed(1)
    loader, _ = make()
    wanted = [batches_of(loader) for _ in range(2)]
    torch.manual_seed(1)
    loader, inside = make()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, users = inside.state_dict(), torch.get_rng_state()
    loader, inside = make()
    inside.load_state_dict(state)
    torch.set_rng_state(users)
    same([batches_of(loader) for _ in range(2)], [wanted[0][2:], wanted[1]])


def test_a_loader_that_erases_nothing_says_so():
    loader = FastLoader(Pictures(COUNT), BATCH, device="cpu", mean=MEAN, std=STD)
    next(iter(loader))
    assert loader.state_dict()["augmentation"] is None
