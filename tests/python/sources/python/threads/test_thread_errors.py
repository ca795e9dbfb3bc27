"""worker_backend="thread": errors are torch's, in their batch's place; what cannot work
is refused."""

import pytest
from thread_loaders import Numbers, make
from torch.utils.data import IterableDataset
from torch.utils.data.datapipes.iter import IterableWrapper

from fastloader import FastLoader


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def raising(error):
    raise error


class Failing(Numbers):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __getitem__(self, index):
        if index == 3:
            raise self.error
        return index


ERRORS = {
    "plain": (ValueError("mine"), ValueError),
    "key": (KeyError("mine"), KeyError),
    "two arguments": (TwoArguments("mine", 2), RuntimeError),
    "exit": (SystemExit("mine"), SystemExit),
    "stop": (StopIteration("mine"), StopIteration),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_dataset_takes_its_batchs_place(name):
    error, kind = ERRORS[name]
    iterator = iter(make(Failing(error), batch_size=2))
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(kind) as caught:
        next(iterator)
    text = str(caught.value)
    assert (
        f"Caught {type(error).__name__} in DataLoader worker thread 1.\nOriginal Traceback" in text
    )
    assert "mine" in text and "__getitem__" in text
    assert next(iterator).tolist() == [4, 5]
    assert len(list(iterator)) == 9


class BadStream(IterableDataset):
    def __init__(self, at_once):
        self.at_once = at_once

    def __iter__(self):
        if self.at_once:
            raise ValueError("mine")
        return self.numbers()

    def numbers(self):
        yield 1
        raise ValueError("mine")


PLACES = {
    "collate": (Numbers(), {"collate_fn": lambda batch: raising(ValueError("mine"))}, 0),
    "init": (Numbers(), {"worker_init_fn": lambda number: raising(ValueError("mine"))}, 0),
    "iter": (BadStream(True), {"batch_size": 1}, 0),
    "iterator": (BadStream(False), {"batch_size": 1}, 2),
}


@pytest.mark.parametrize("place", PLACES)
def test_errors_of_every_place(place):
    dataset, options, good = PLACES[place]
    iterator = iter(make(dataset, **options))
    for _ in range(good):
        next(iterator)
    for number in range(2):
        with pytest.raises(
            ValueError, match=f"in DataLoader worker thread {number}.*\n.*(\n.*)*mine"
        ):
            next(iterator)


def test_an_error_of_the_sampler():
    def sampler():
        yield 1
        yield 2
        raise ValueError("mine")

    theirs = make(Numbers(), batch_size=None, sampler=sampler(), prefetch_factor=1)
    iterator = iter(theirs)
    with pytest.raises(ValueError, match=r"^mine$"):
        for _ in range(3):
            next(iterator)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"worker_backend": "fibre"}, "use 'process' or 'thread'"),
        ({"worker_backend": "thread", "multiprocessing_context": "fork"}, "for worker_backend"),
        ({"worker_backend": "thread", "dataset": IterableWrapper([1])}, "DataPipe"),
    ],
)
def test_what_cannot_work_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        FastLoader(**{"dataset": Numbers(), "num_workers": 1, **options})
