"""Datasets and batches of every kind: the same contents, containers and warnings as with DataLoader."""

import collections
import dataclasses
import warnings

import numpy as np
import pytest
import torch
from side_by_side import Numbers, batches, described, generators, image, same_for_both
from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from fastloader._core.sources.encoded import collation
from support import random_images

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 2])

Point = collections.namedtuple("Point", "image x")


@dataclasses.dataclass
class Record:
    image: torch.Tensor
    name: str
    extra: object = None


class Holder:
    """An object that no collate function knows."""

    def __init__(self, image, value):
        self.image = image
        self.value = value

    def __repr__(self):
        return "Holder"


class Tagged(torch.Tensor):
    pass


class Custom(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.note = "kept"


class Row(list):
    pass


def stacked(samples):
    return torch.stack([sample[0] for sample in samples])


# What collate_fn makes of (picture, index) samples; None is default_collate.
COLLATE = {
    "default": None,
    "tuple": lambda s: (stacked(s), 1, "text", b"bytes", None, 2.5, True),
    "list of samples": lambda s: [stacked(s), s],
    "namedtuple": lambda s: Point(stacked(s), torch.tensor([x for _, x in s])),
    "nested": lambda s: {"a": [{"b": (stacked(s), Point(None, "x"))}], "c": {"d": torch.ones(1)}},
    "dataclass": lambda s: Record(stacked(s), "n", [torch.zeros(2), None]),
    "object": lambda s: (stacked(s), Holder(None, 7)),
    "ordered": lambda s: collections.OrderedDict(z=stacked(s), a=torch.tensor(1)),
    "defaultdict": lambda s: collections.defaultdict(list, images=stacked(s), other=[1, "b"]),
    "dict subclass": lambda s: Custom(images=stacked(s), y=3),
    "list subclass": lambda s: Row([stacked(s), torch.tensor([1])]),
    "tensor subclass": lambda s: (stacked(s), torch.arange(3).as_subclass(Tagged)),
    "numpy": lambda s: (stacked(s), np.arange(3), np.float32(2.5)),
    "strings": lambda s: (stacked(s), ["a", "b"], ("c",)),
    "dtypes": lambda s: (
        stacked(s),
        [torch.ones(2, dtype=d) for d in (torch.bool, torch.int8, torch.float64, torch.bfloat16)],
        torch.tensor(1j),
        torch.empty(0, 3),
    ),
    # The same shape in other orders of bytes, and with gaps, in one loader.
    "channels last": lambda s: (stacked(s).contiguous(memory_format=torch.channels_last), s[0][1]),
    "channels first again": lambda s: (stacked(s), s[0][1]),
    "NHWC": lambda s: (stacked(s).permute(0, 2, 3, 1).contiguous(), s[0][1]),
    "mirrored": lambda s: (stacked(s).flip(3), s[0][1]),
    "a crop": lambda s: (torch.cat([stacked(s)] * 2, dim=3)[..., 3:8], s[0][1]),
    "every second sample": lambda s: (torch.cat([stacked(s)] * 2)[::2], s[0][1]),
    "transposed": lambda s: (stacked(s), torch.arange(6).view(2, 3).t(), torch.ones(4, 3)[:, :2]),
    "sets": lambda s: (stacked(s), {1, 2}, frozenset("a"), range(3), slice(1, 2)),
}


def each_kind(samples):
    """The number of the batch says which of COLLATE."""
    collate = list(COLLATE.values())[samples[0][1] // 2]
    return (collate or default_collate)(samples)


@pytest.mark.exhaustive
@WORKERS
def test_batches_of_every_kind(fast, workers):
    def scenario(make):
        numbers = Numbers(2 * len(COLLATE))
        return batches(make(numbers, batch_size=2, num_workers=workers, collate_fn=each_kind))

    seen = same_for_both(fast, scenario)
    assert len(seen) == len(COLLATE) and not any(each[0].endswith("Error") for each in seen)


def test_what_a_container_holds_besides_its_items(fast):
    def scenario(make):
        loader = make(Numbers(2), batch_size=2, collate_fn=COLLATE["dict subclass"])
        return [batch.note for batch in loader]

    assert same_for_both(fast, scenario) == ["kept"]


# What a dataset gives besides the picture, for default_collate.
VALUES = {
    "int": int,
    "float": float,
    "str": str,
    "bytes": lambda i: b"%d" % i,
    "numpy scalar": np.float32,
    "numpy array": lambda i: np.full((2,), i, dtype=np.int16),
    "tensor": lambda i: torch.full((2, 1), i, dtype=torch.bfloat16),
    "tuple": lambda i: (i, float(i)),
    "list": lambda i: [i, str(i)],
    "dict": lambda i: {"a": i, "b": {"c": torch.tensor(i)}},
    "ordered": lambda i: collections.OrderedDict(b=i, a=str(i)),
    "defaultdict": lambda i: collections.defaultdict(int, b=i),
    "namedtuple": lambda i: Point(i, str(i)),
    "bool": lambda i: i > 2,
    "None": lambda i: None,  # default_collate refuses it
    "object": lambda i: Holder(None, i),  # ... and this
    "ragged": lambda i: torch.zeros(1 + i),  # ... and this
    "uneven": lambda i: [0] * i,  # ... and this
    "subclass": lambda i: torch.full((2,), i).as_subclass(Tagged),
}


def value_of_each_kind(index):
    """Two samples, a batch, of each kind of VALUES."""
    return list(VALUES.values())[index // 2](index % 2)


@WORKERS
def test_default_collate(fast, workers, monkeypatch):
    # What ours says besides, where samples do not stack: test_layouts.py.
    monkeypatch.setattr(collation, "_SIZES", "")

    def scenario(make):
        numbers = Numbers(2 * len(VALUES), value_of_each_kind)
        return batches(make(numbers, batch_size=2, num_workers=workers))

    seen = same_for_both(fast, scenario)
    assert len(seen) == len(VALUES) and sum(each[0].endswith("Error") for each in seen) == 4


@WORKERS
def test_default_convert(fast, workers):
    class Whole(Numbers):
        def __getitem__(self, index):
            return image(index)[None], self.value(index), np.arange(index)

    def scenario(make):
        numbers = Whole(2 * len(VALUES), value_of_each_kind)
        return batches(make(numbers, batch_size=None, num_workers=workers))

    assert len(same_for_both(fast, scenario)) == 2 * len(VALUES)


@WORKERS
def test_getitems(fast, workers):
    class Several(Numbers):
        def __getitem__(self, index):
            raise AssertionError("one by one")

        def __getitems__(self, indices):
            assert type(indices) is list
            return [(image(index), (index, len(indices))) for index in indices]

    def scenario(make):
        return batches(make(Several(7), batch_size=3, shuffle=True, num_workers=workers))

    assert len(same_for_both(fast, scenario)) == 3


@WORKERS
def test_getitems_that_is_none(fast, workers):
    class Unset(Numbers):
        __getitems__ = None

    same_for_both(fast, lambda make: batches(make(Unset(4), batch_size=2, num_workers=workers)))


def tensors(seed=0):
    return TensorDataset(random_images(seed, 9, 3, 4, 5), torch.arange(9) + 10 * seed)


class Counting(IterableDataset):
    """``length`` may be a lie. Every worker gives everything, unless it is to share."""

    def __init__(self, count=8, length=None, share=False, first=0):
        self.count = count
        self.length = length
        self.share = share
        self.first = first

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start, step = (info.id, info.num_workers) if self.share and info else (0, 1)
        for number in range(start, self.count, step):
            yield image(self.first + number), self.first + number

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


DATASETS = {
    "TensorDataset": tensors,
    "Subset": lambda: Subset(tensors(), [8, 0, 3, 3, 1]),
    "Subset of Subset": lambda: Subset(Subset(tensors(), range(1, 8)), [6, 0, 2]),
    "ConcatDataset": lambda: ConcatDataset([tensors(), tensors(1), Subset(tensors(2), [4])]),
    "StackDataset": lambda: StackDataset(random_images(0, 9, 3, 4, 5), torch.arange(9)),
    "StackDataset of names": lambda: StackDataset(
        picture=random_images(0, 5, 3, 4, 5), label=list("abcde")
    ),
    "random_split": lambda: torch.utils.data.random_split(tensors(), [4, 5])[1],
    "list": lambda: [(image(i), i) for i in range(5)],
    "tuple": lambda: tuple((image(i), str(i)) for i in range(5)),
    "dict by index": lambda: {i: (image(i), i) for i in range(5)},
    "ChainDataset": lambda: ChainDataset([Counting(3), Counting(4, first=10)]),
    "iterable shared": lambda: Counting(9, share=True),
    "iterable not shared": lambda: Counting(5),
    "iterable short": lambda: Counting(1, share=True),
    "iterable empty": lambda: Counting(0),
    "empty": lambda: [],
}


@pytest.mark.exhaustive
@WORKERS
@pytest.mark.parametrize("name", DATASETS)
def test_datasets(fast, name, workers):
    def scenario(make):
        dataset = DATASETS[name]()
        options = {"batch_size": 2, "drop_last": "iterable" in name, "num_workers": workers}
        options["persistent_workers"] = workers > 0
        options["shuffle"] = not isinstance(dataset, IterableDataset) and len(dataset) > 0
        loader = make(dataset, **options)
        return [batches(loader), batches(loader), generators()]

    same_for_both(fast, scenario)


@pytest.mark.exhaustive
@WORKERS
@pytest.mark.parametrize("length", [None, 0, 3, 8])
@pytest.mark.parametrize(
    "batch_size, drop_last", [(None, False), (1, False), (3, False), (3, True)]
)
def test_length_of_an_iterable(fast, batch_size, drop_last, length, workers):
    """len() is the dataset's word; more samples than that are a warning at the batch that is too
    many, and only where somebody has asked."""

    def scenario(make):
        seen = []
        for asks in (False, True):
            dataset = Counting(8, length)
            dataset.__class__.__repr__ = lambda self: "Counting()"
            extra = {"collate_fn": lambda s: (s[0][None], s[1])} if batch_size is None else {}
            loader = make(
                dataset, batch_size=batch_size, drop_last=drop_last, num_workers=workers, **extra
            )
            if asks:
                try:
                    seen.append(len(loader))
                except TypeError as error:
                    seen.append(str(error))
            iterator = iter(loader)
            while True:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    batch = next(iterator, None)
                seen.append((described(batch), [str(each.message) for each in caught]))
                if batch is None:
                    break
        return seen

    same_for_both(fast, scenario)


@pytest.mark.exhaustive
@WORKERS
def test_iterable_errors(fast, workers):
    """In __iter__, at a sample, and StopIteration's own ways."""

    class Broken(IterableDataset):
        def __init__(self, where):
            self.where = where

        def __iter__(self):
            if self.where == "iter":
                raise OSError("iter")
            return self.numbers()

        def numbers(self):
            for number in range(4):
                if number == 2 and self.where == "next":
                    raise ValueError("next")
                if number == 2 and self.where == "stop":
                    return
                yield image(number), number

    def scenario(make):
        return [
            batches(make(Broken(where), num_workers=workers)) for where in ("iter", "next", "stop")
        ]

    same_for_both(fast, scenario)


@pytest.mark.exhaustive
@WORKERS
@pytest.mark.parametrize("kind", [StopIteration, IndexError, KeyError, GeneratorExit])
def test_what_a_map_dataset_raises(fast, kind, workers):
    """StopIteration from __getitem__ ends the epoch without workers, and is an error with them."""

    class Ending(Numbers):
        def __getitem__(self, index):
            if index == 3:
                raise kind("at three")
            return super().__getitem__(index)

    def scenario(make):
        iterator = iter(make(Ending(6), num_workers=workers))
        seen = []
        while len(seen) < 9:
            try:
                seen.append(described(next(iterator)))
            except StopIteration as error:
                seen.append(str(error).splitlines()[:1])
                break
            except BaseException as error:
                seen.append((type(error).__name__, str(error).splitlines()[:1]))
        return seen

    if kind is GeneratorExit and workers:
        pytest.skip("ends the worker")
    same_for_both(fast, scenario)
