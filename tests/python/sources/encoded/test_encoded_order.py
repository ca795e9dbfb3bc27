"""Encoded pictures in unusual orders: batches that come early or late, other indices, Ctrl-C."""

import gc
import time
from collections import UserList
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from encoded_samples import CROP, WHOLE, Captions, paths_below
from pictures import plain_folder
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fastloader import EncodedImage, FastLoader
from fastloader._core.sources.encoded.decoder import EncodedRepair, PendingPictures


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_below(plain_folder(tmp_path_factory.mktemp("plain"), 10, classes=1))


@pytest.fixture
def one_bad(paths, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff no picture")
    return [*paths[:3], str(bad), *paths[3:6]]


def ahead(iterator):
    """The rest of an epoch, of which something has always come before it is asked for."""
    while True:
        while not (iterator._data_queue.qsize() or has_come(iterator)):
            time.sleep(0.001)
        try:
            yield next(iterator)
        except StopIteration:
            return


def has_come(iterator):
    """Whether something was taken from the queue early, or nothing will come any more."""
    taken = any(len(task) == 2 for task in iterator._task_info.values())
    return taken or not iterator._tasks_outstanding or not any(iterator._workers_status)


class Counted(Captions):
    """Has a state, so that workers wrap its batches."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class CountedStream(IterableDataset):
    def __init__(self, paths):
        self.paths, self.at = paths, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.paths):
            raise StopIteration
        self.at += 1
        return EncodedImage(self.paths[self.at - 1], WHOLE), self.at - 1

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_batches_with_a_state_that_come_early_are_decoded(paths):
    loader = FastLoader(Counted(paths, WHOLE), 2, num_workers=1, prefetch_factor=3)
    iterator = iter(loader)
    first = next(iterator)
    loader.state_dict()  # from now on they bring a state
    got = [first, *ahead(iterator)]
    assert torch.cat([batch[1] for batch in got]).tolist() == list(range(10))
    for batch in got:
        for picture, number in zip(batch[0], batch[1].tolist()):
            assert torch.equal(picture, EncodedImage(paths[number], WHOLE).decode())


def test_the_state_of_a_worker_whose_end_comes_early_is_kept(paths):
    loader = FastLoader(CountedStream(paths[:5]), 2, num_workers=1, prefetch_factor=3)
    iterator = iter(loader)
    first = next(iterator)
    loader.state_dict()  # from now on they bring a state
    got = [first, *ahead(iterator)]
    assert [batch[1].tolist() for batch in got] == [[0, 1], [2, 3], [4]]
    assert list(iterator._pass.ended) == ["0"]


@pytest.mark.parametrize("kind", [tuple, torch.tensor, np.array], ids=["tuple", "tensor", "array"])
def test_a_batch_sampler_may_give_any_sequence(paths, kind):
    sampler = [[3, 1], [0], [2, 4, 5]]
    wanted = FastLoader(Captions(paths, CROP), batch_sampler=sampler)
    loader = FastLoader(Captions(paths, CROP), batch_sampler=[kind(each) for each in sampler])
    for loaded in (wanted, loader):
        loaded.generator = torch.Generator().manual_seed(5)
    for (pictures, numbers, _), (others, same, _) in zip(wanted, loader, strict=True):
        assert numbers.tolist() == same.tolist()
        assert torch.equal(pictures, others)


class ListsOfPictures(Captions):
    def __getitem__(self, indices):
        return [EncodedImage(self.paths[i], self.transform) for i in indices], torch.tensor(indices)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_may_be_made_of_many_indices(paths, workers):
    batches = BatchSampler(SequentialSampler(paths), 4, drop_last=False)
    loader = FastLoader(
        ListsOfPictures(paths, WHOLE), batch_size=None, sampler=batches, num_workers=workers
    )
    got = list(loader)
    assert [numbers.tolist() for _, numbers in got] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for pictures, numbers in got:
        for picture, number in zip(pictures, numbers, strict=True):
            assert torch.equal(picture, EncodedImage(paths[number], WHOLE).decode())


class OfOnesOwn(Sequence):
    """A sequence that the loader does not open."""

    def __init__(self, items):
        self.items_ = items

    def __getitem__(self, i):
        return self.items_[i]

    def __len__(self):
        return len(self.items_)


class Refusing(Mapping):
    """A mapping that cannot be made of a dict, so that default_collate begins again."""

    def __init__(self, picture, number):
        self.items_ = {"picture": picture, "number": number}

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class InContainers(Captions):
    def __init__(self, paths, kind):
        super().__init__(paths, WHOLE)
        self.kind = kind

    def __getitem__(self, i):
        picture = EncodedImage(self.paths[i], WHOLE)
        return OfOnesOwn([picture, i]) if self.kind is OfOnesOwn else Refusing(picture, i)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [OfOnesOwn, Refusing])
def test_containers_that_the_loader_does_not_open(paths, kind, workers):
    loader = FastLoader(InContainers(paths, kind), 4, num_workers=workers)
    seen = []
    for batch in loader:
        pictures, numbers = batch if kind is OfOnesOwn else batch.values()
        seen += numbers.tolist()
        for picture, number in zip(pictures, numbers.tolist(), strict=True):
            assert torch.equal(picture, EncodedImage(paths[number], WHOLE).decode())
    assert seen == list(range(10))
    counted = loader.stats()["pictures"]
    assert counted["pool"] == 0 and counted["workers"] >= 10


class UserLists(Captions):
    def __getitem__(self, i):
        return UserList(super().__getitem__(i))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_user_lists_are_opened(paths, batch_size, workers):
    loader = FastLoader(UserLists(paths, WHOLE), batch_size, num_workers=workers)
    wanted = DataLoader(UserLists(paths, WHOLE), batch_size)
    for got, other in zip(loader, wanted, strict=True):
        assert type(got) is UserList and type(got[0]) is torch.Tensor
        other = other[0].decode() if batch_size is None else other[0]
        assert torch.equal(got[0], other)
    assert loader.stats()["pictures"]["pool"] == 10


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "worker_backend": "thread"}], ids=str)
def test_what_an_abandoned_epoch_had_asked_for_is_not_decoded(paths, options):
    """Persistent workers send it while the next epoch begins."""
    options = {"num_workers": 1, "prefetch_factor": 4, **options}
    loader = FastLoader(Captions(paths, WHOLE), 1, persistent_workers=True, **options)
    for _ in loader:
        break
    numbers = [batch[1].item() for batch in loader]
    assert numbers == list(range(10))
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is PendingPictures]


# --- bad samples ----------------------------------------------------------------------------------


def test_a_sample_that_is_left_out_has_no_parameters(one_bad, way):
    dataset = Captions(one_bad, CROP, return_parameters=True)
    loader = FastLoader(dataset, 4, on_error="skip", **way.options)
    (pictures, rows), numbers, _ = next(iter(loader))
    assert numbers.tolist() == [0, 1, 2]
    assert {len(each) for each in (pictures, *rows.values())} == {3}
    wanted = [EncodedImage(path).decode().shape[1:] for path in one_bad[:3]]
    assert [tuple(size) for size in rows["size"].tolist()] == [tuple(each) for each in wanted]


def test_the_parameters_of_a_replaced_sample_are_the_others(one_bad, way):
    dataset = Captions(one_bad, CROP, return_parameters=True)
    loader = FastLoader(dataset, 4, on_error="replace", **way.options)
    (pictures, rows), numbers, _ = next(iter(loader))
    other = numbers.tolist()[3]
    assert other != 3
    assert rows["size"][3].tolist() == list(EncodedImage(one_bad[other]).decode().shape[1:])
    assert min(rows["box"][3, 2:].tolist()) > 0  # width and height
    assert len(pictures) == len(rows["steps"]) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_is_not_batched_is_replaced(one_bad, workers):
    dataset = Captions(one_bad, WHOLE)
    loader = FastLoader(dataset, batch_size=None, on_error="replace", num_workers=workers)
    got = list(loader)
    numbers = [number for _, number, _ in got]
    assert numbers[3] != 3
    assert numbers[:3] + numbers[4:] == [0, 1, 2, 4, 5, 6]
    for picture, number, text in got:
        assert text == f"text {number}"
        assert torch.equal(picture, EncodedImage(one_bad[number], WHOLE).decode())


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}], ids=str)
def test_ctrl_c_in_a_repair_counts_nothing_twice(one_bad, options, monkeypatch):
    whole = EncodedRepair.done
    calls = []

    def interrupted(self, *arguments):
        kept = whole(self, *arguments)
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return kept

    monkeypatch.setattr(EncodedRepair, "done", interrupted)
    loader = FastLoader(Captions(one_bad, WHOLE), 7, on_error="skip", **options)
    iterator = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert next(iterator)[1].tolist() == [0, 1, 2, 4, 5, 6]
    assert len(calls) == 2
    counted = loader.stats()["pictures"]
    assert (counted["bad"], counted["seen"]) == (1, 7)


def test_an_error_that_is_kept_keeps_no_batch(one_bad):
    loader = FastLoader(Captions(one_bad, WHOLE), 7)
    iterator = iter(loader)
    gc.disable()
    try:
        with pytest.raises(OSError, match="cannot identify") as kept:
            next(iterator)
        assert kept.value is not None
        assert loader._runtime.fallback.encoded._decoder.memory.stats()["in_use"] == 0
    finally:
        gc.enable()
