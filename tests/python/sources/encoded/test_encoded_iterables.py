"""What encoded pictures of an iterable dataset are drawn by, where workers end unevenly, and after a
resume."""

import threading

import pytest
import torch
from encoded_samples import CROP, Captions, Stream, paths_below
from pictures import plain_folder
from side_by_side import since_2_6
from torch.utils.data import IterableDataset, RandomSampler, get_worker_info

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from support import generator, same

pytestmark = pytest.mark.covering

SIZE = 2
PARTS = [range(7), range(7, 10), range(0), range(10, 13)]  # what each worker has
# The workers whose batches the loop gets: each in its turn, less those that have ended.
TURNS = [0, 1, 3, 0, 1, 3, 0, 0]
PROCESSES = {"num_workers": 4}
THREADS = {"num_workers": 4, "worker_backend": "thread"}
PYTHON = PROCESSES | {"native": False}
LIVING = {"persistent_workers": True}
OPTIONS = [PROCESSES, THREADS, PYTHON, PROCESSES | LIVING, THREADS | LIVING, PYTHON | LIVING]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_below(plain_folder(tmp_path_factory.mktemp("plain"), 13, classes=1))


class Uneven(IterableDataset):
    """``late``: a worker, which begins when another has ended."""

    def __init__(self, paths, late=None):
        self.paths = paths
        self.late, self.ended = late, threading.Semaphore(0)

    def __iter__(self):
        worker = get_worker_info().id
        if worker == self.late:
            assert self.ended.acquire(timeout=60)
        for number in PARTS[worker]:
            yield EncodedImage(self.paths[number], CROP, return_parameters=True), number
        if worker != self.late:
            self.ended.release()


class Unlocked(Uneven):
    """Crosses to processes."""

    def __init__(self, paths):
        self.paths, self.late, self.ended = paths, None, self

    def release(self):
        pass


def loader_of(dataset, **options):
    return FastLoader(dataset, generator=generator(5), **{"batch_size": SIZE, **options})


def by_worker(batches):
    """Each worker's, in their order."""
    found = [[] for _ in PARTS]
    for batch in batches:
        number = batch[1][0].item()
        found[next(w for w, part in enumerate(PARTS) if number in part)].append(batch)
    return found


def check_replayed(loader, batches):
    """A sample's number is its worker's, and how many that has made before."""
    for worker, its in enumerate(by_worker(batches)):
        for before, ((_, parameters), _) in enumerate(its):
            for row, steps in enumerate(parameters["steps"]):
                number = (worker << 32) + before * SIZE + row
                assert loader.replay(number)["steps"] == T.named_steps(steps)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_draws_are_those_of_the_workers_samples(paths, options):
    loader = loader_of(Unlocked(paths), **options)
    other = loader_of(
        Unlocked(paths), **(THREADS | {"persistent_workers": "persistent_workers" in options})
    )
    for _ in range(2):
        batches = list(loader)
        firsts = [numbers[0].item() for _, numbers in batches]
        assert [next(w for w, p in enumerate(PARTS) if n in p) for n in firsts] == TURNS
        check_replayed(loader, batches)
        for (got, _), (wanted, _) in zip(batches, other, strict=True):
            assert torch.equal(got[0], wanted[0])


@pytest.mark.parametrize("late", [0, 1, 3])
def test_draws_do_not_depend_on_who_is_late(paths, late):
    """Until the others have ended, their ends are not known, and batches are asked for in vain."""
    loader = loader_of(Uneven(paths, late), **THREADS)
    batches = list(loader)
    wanted = list(loader_of(Unlocked(paths), **THREADS))
    for (got, _), (other, _) in zip(batches, wanted, strict=True):
        assert torch.equal(got[0], other[0])
    check_replayed(loader, batches)


@pytest.mark.skipif(not since_2_6, reason="torch has in_order since 2.6")
@pytest.mark.parametrize("late", [0, 1, 3])
def test_nor_do_they_if_batches_are_taken_as_they_come(paths, late):
    wanted = by_worker(loader_of(Unlocked(paths), **THREADS))
    got = by_worker(loader_of(Uneven(paths, late), in_order=False, **THREADS))
    for its, others in zip(got, wanted, strict=True):
        for (image, _), (other, _) in zip(its, others, strict=True):
            assert torch.equal(image[0], other[0])


# --- resumes ----------------------------------------------------------------------------------------


class Counting:
    """An iterator with a state, over what a worker has, or all of it."""

    def __init__(self, paths):
        info = get_worker_info()
        self.paths, self.at = paths, 0
        self.part = range(13) if info is None else PARTS[info.id]

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.part):
            raise StopIteration
        self.at += 1
        number = self.part[self.at - 1]
        return EncodedImage(self.paths[number], CROP), number

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Stateful(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        return Counting(self.paths)


class Remembering(Captions):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def check_resumed(make, received, asked=False):
    """``asked``: whether a state is asked for before, so that workers send theirs."""
    wanted = list(make())
    loader = make()
    if asked:
        loader.state_dict()
    iterator = iter(loader)
    same([next(iterator) for _ in range(received)], wanted[:received])
    state = loader.state_dict()
    loader = make()
    loader.load_state_dict(state)
    same(list(loader), wanted[received:])


@pytest.mark.exhaustive
@pytest.mark.parametrize("received", [1, 3, 6])
@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
def test_a_stream_that_is_read_again(paths, options, received):
    check_resumed(lambda: loader_of(Stream(paths), **options), received)


@pytest.mark.exhaustive
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("received", range(1, 7))
@pytest.mark.parametrize("options", [{}, PROCESSES, PYTHON, PROCESSES | LIVING], ids=str)
def test_workers_that_go_on_from_their_own_states(paths, options, received, asked):
    check_resumed(lambda: loader_of(Stateful(paths), **options), received, asked)


@pytest.mark.parametrize("received", [1, 3])
@pytest.mark.parametrize("native", [True, False])
def test_workers_that_read_again_what_may_repeat(paths, received, native):
    """They were not asked for their states before."""

    def make():
        dataset = Remembering(paths, CROP)
        drawn = RandomSampler(dataset, replacement=True, generator=generator(7))
        return loader_of(dataset, sampler=drawn, num_workers=2, native=native)

    check_resumed(make, received)
