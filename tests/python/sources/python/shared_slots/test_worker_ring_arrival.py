"""Batches of worker processes through the shared slots: what arrives is what torch's queue delivers."""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ring_samples import Samples, workers
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader._core.sources.encoded.collation import _SIZES
from support import random_images, same

pytestmark = [
    pytest.mark.skipif(extension.load() is None, reason="the native module is not in use"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.usefixtures("forced"),
]

LARGE = (64, 40, 40)  # more than what is copied out of the slot


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    image: Any
    label: Any


class Bag:
    """An object that nobody opens but pickle."""

    def __init__(self, **items):
        self.__dict__.update(items)


class Kind(torch.Tensor):
    pass


def large(seed=0):
    return torch.randn(LARGE, generator=torch.Generator().manual_seed(seed))


def views(tensor):
    return [tensor[:32], tensor[32:], tensor[8:40].transpose(1, 2)]


def twice(tensor):
    return {"a": tensor, "b": [tensor, tensor.view(-1)]}


def overlapping(tensor):
    return [tensor[3:6], tensor[5:8]]


def row_and_all(tensor):
    return [tensor[3], tensor]


BATCHES = {
    "large": large,
    "small": lambda: torch.arange(5),
    "zero-dim": lambda: torch.tensor(2.5),
    "empty": lambda: torch.empty(0, 3),
    "transposed": lambda: large().transpose(0, 2),
    "channels_last": lambda: (
        torch.randn(4, 3, 40, 40).to(memory_format=torch.channels_last) * 0 + 1
    ),
    "expanded": lambda: torch.arange(40000.0).view(-1, 1).expand(-1, 3),
    "views of one storage": lambda: views(large()),
    "one tensor twice": lambda: twice(large()),
    "a small one twice": lambda: twice(torch.arange(6.0)),
    "parameter": lambda: torch.nn.Parameter(large()),
    "requires_grad": lambda: large().requires_grad_(),
    "subclass": lambda: large().as_subclass(Kind),
    "sparse": lambda: (large() > 1).to_sparse(),
    "csr": lambda: (large()[0] > 1).float().to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(large(), 0.1, 3, torch.quint8),
    "complex": lambda: torch.complex(large(), large(1)),
    "bfloat16": lambda: large().bfloat16(),
    "bool": lambda: large() > 0,
    "uint16": lambda: torch.arange(50000, dtype=torch.int32).to(torch.uint16),
    "meta": lambda: torch.empty(3, device="meta"),
    "packed sequence": lambda: pack_sequence([large()[0], large()[1][:7]]),
    "namedtuple": lambda: Point(large(), "text"),
    "dataclass": lambda: Record(large(), None),
    "ordered": lambda: collections.OrderedDict(b=large(), a=torch.arange(3)),
    "object": lambda: Bag(image=large(), inner=Bag(label=torch.arange(9), name="n")),
    "text": lambda: ["x" * 200_000, b"y" * 70_000, None, 3, 2.5],
    "text and tensors": lambda: (large(), "x" * 200_000),
    "arrays": lambda: [np.arange(50_000.0), np.float32(2)],
    "rows that overlap": lambda: [large()[3]] * 2 + overlapping(large()),
    "row and all": lambda: row_and_all(large()),
    "row with gaps": lambda: large()[3, :, ::2],
    "shared already": lambda: large().share_memory_(),
    "nothing": lambda: None,
}


class Build:
    """A collate_fn that makes the batch of that name, in the worker."""

    def __init__(self, name):
        self.name = name

    def __call__(self, samples):
        torch.manual_seed(0)
        return BATCHES[self.name]()


def describe(batch, storages=None, objects=None):
    """All that can be seen of a batch, with which tensors share a storage or are one object."""
    storages = {} if storages is None else storages
    objects = {} if objects is None else objects

    def inner(value):
        return describe(value, storages, objects)

    if isinstance(batch, torch.Tensor):
        said = [type(batch), batch.dtype, batch.layout, tuple(batch.shape), batch.requires_grad]
        said += [batch.device, batch.is_leaf, objects.setdefault(id(batch), len(objects))]
        said += [batch._base is None, batch._version]
        if batch.layout is torch.strided and batch.device.type == "cpu":
            storage = batch.untyped_storage()
            said += [batch.stride(), batch.storage_offset(), storage.nbytes()]
            said += [storages.setdefault(storage.data_ptr(), len(storages))]
            said += [torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()]
        # A quantised tensor arrives without its quantiser, from torch too.
        if batch.device.type == "cpu" and not batch.is_quantized:
            dense = batch.to_dense() if batch.layout is not torch.strided else batch
            said += [dense.detach().float().tolist() if not dense.is_complex() else dense.tolist()]
        return said
    if isinstance(batch, np.ndarray):
        return [batch.dtype, batch.flags.writeable, batch.tolist()]
    if isinstance(batch, dict):
        return [type(batch), *((key, inner(value)) for key, value in batch.items())]
    if isinstance(batch, list | tuple):
        return [type(batch), *(inner(value) for value in batch)]
    if dataclasses.is_dataclass(batch) or isinstance(batch, Bag):
        return [type(batch), inner(vars(batch))]
    return [type(batch), batch]


ORDINARY = {"rows that overlap", "row and all", "row with gaps", "shared already"}
NO_TENSORS = {"empty", "meta", "nothing"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_batch_arrives_as_from_torch(name):
    if name == "meta" and not hasattr(torch.multiprocessing.reductions, "rebuild_meta_tensor"):
        pytest.skip("this torch cannot send one, and waits for ever")
    options = {"batch_size": 2, "num_workers": 1, "collate_fn": Build(name)}
    loader = FastLoader(Samples(6), **options)
    wanted = [describe(batch) for batch in DataLoader(Samples(6), **options)]
    assert [describe(batch) for batch in loader] == wanted
    counted = workers(loader)
    if name in ORDINARY:
        assert counted["fallbacks"] == 3 and counted["slots_used"] == 0, counted
    elif name not in NO_TENSORS:
        assert counted["fallbacks"] == 0 and counted["slots_used"] == 3, counted


class Rows(Dataset):
    """Its samples are views of one tensor, which torch would send as a whole."""

    def __init__(self):
        self.images = random_images(5, 40, 3, 100, 100)
        self.labels = torch.arange(5000).view(40, 125)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        row = self.images[index]
        return {
            "row": row,
            "again": row,
            "next": self.images[index - 1].transpose(0, 2),
        }, self.labels[index]


def test_rows_of_a_large_tensor_travel_alone():
    loader = FastLoader(Rows(), batch_size=None, num_workers=2)
    for got, wanted in zip(loader, DataLoader(Rows(), batch_size=None), strict=True):
        same(got, wanted)
        assert got[0]["row"] is got[0]["again"]
        assert got[0]["next"].stride() == wanted[0]["next"].stride()
        assert got[0]["row"].untyped_storage().nbytes() == 30_000
    assert workers(loader)["slots_used"] == 40 and workers(loader)["fallbacks"] == 0


class Mixed(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {
            "image": torch.randn(3, 60, 60, generator=generator),
            "array": np.full((60, 60), index, dtype=np.int16),
            "memmap": np.arange(4) + index,
            "pair": (torch.tensor(index), float(index)),
            "list": [index, f"name {index}", np.float64(index)],
            "half": torch.randn(50, 50, generator=generator).half(),
        }


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_default_collate_goes_straight_into_the_slot(context):
    options = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": context}
    loader = FastLoader(Mixed(), **options)
    for _epoch in range(2):
        batches = list(loader)
        same(batches, list(DataLoader(Mixed(), **{**options, "multiprocessing_context": "fork"})))
        assert [describe(batch["image"]) for batch in batches]
    assert workers(loader)["slots_used"] == 6 and workers(loader)["fallbacks"] == 0


class Ragged(Samples):
    def __getitem__(self, index):
        if index == 1:
            return torch.zeros(7), index
        if index == 5:
            return torch.zeros(6, requires_grad=True), index
        return torch.zeros(6), index


def test_samples_that_do_not_stack_are_refused_in_torchs_words():
    def words(kind):
        iterator = iter(kind(Ragged(8), batch_size=2, num_workers=1))
        said = []
        for _ in range(4):
            try:
                said.append(str(next(iterator)))
            except RuntimeError as error:
                said.append(str(error).strip().splitlines()[-1])
        return said

    theirs = words(DataLoader)
    assert theirs[0].startswith("RuntimeError: stack expects")
    theirs[0] += _SIZES
    assert words(FastLoader) == theirs


def own_stack(batch, *, collate_fn_map=None):
    return torch.stack(batch) + 1000


def use_own_stack(_worker):
    default_collate_fn_map[torch.Tensor] = own_stack


def test_the_users_own_table_stays():
    options = {"batch_size": 4, "num_workers": 1, "worker_init_fn": use_own_stack}
    loader = FastLoader(Samples(8), **options)
    got = list(loader)
    same(got, list(DataLoader(Samples(8), **options)))
    assert got[0][0].min() >= 1000 and workers(loader)["slots_used"] == 2
    assert default_collate_fn_map[torch.Tensor] is collate_tensor_fn  # in this process


class Unpicklable(Samples):
    def __getitem__(self, index):
        return (lambda: 1) if index == 2 else super().__getitem__(index)


def test_a_batch_that_cannot_be_pickled_is_an_error_in_its_place():
    loader = FastLoader(Unpicklable(6), batch_size=None, num_workers=1, timeout=60)
    iterator = iter(loader)
    assert [next(iterator)[1], next(iterator)[1]] == [0, 1]
    with pytest.raises(Exception, match="in DataLoader worker process 0"):
        next(iterator)
    assert [batch[1] for batch in iterator] == [3, 4, 5]


class Failing(Samples):
    def __getitem__(self, index):
        if index % 5 == 2:
            raise KeyError(f"sample {index}")
        return super().__getitem__(index)


def test_an_exception_takes_its_batchs_place_and_costs_no_slot():
    loader = FastLoader(Failing(200, shape=(100, 200)), batch_size=1, num_workers=2)
    iterator = iter(loader)
    for index in range(200):
        if index % 5 == 2:
            with pytest.raises(KeyError, match=f"sample {index}"):
                next(iterator)
        else:
            assert next(iterator)[1].item() == index
    assert workers(loader)["fallbacks"] == 0 and workers(loader)["slots_used"] == 160


def test_switched_off(monkeypatch):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "0")
    loader = FastLoader(Samples(), batch_size=4, num_workers=1)
    assert all(images.is_shared() for images, _ in loader)
    assert workers(loader)["slots_used"] == 0
    assert workers(loader)["why_no_ring"] == "switched off"
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "maybe")
    with pytest.raises(ValueError, match="FASTLOADER_WORKER_RING='maybe'"):
        iter(loader)
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "1")
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    with pytest.raises(Exception, match="FASTLOADER_WORKER_RING=1 needs the native module"):
        iter(loader)
