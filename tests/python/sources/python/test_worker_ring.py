"""Batches of worker processes through the shared ring: what arrives is what torch's queue delivers, and
no slot is used again under a live tensor."""

import collections
import copy
import dataclasses
import gc
import os
import pickle
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from fastloader import FastLoader
from fastloader._core.machine import extension
from support import children, eventually, random_images, same

pytestmark = [
    pytest.mark.skipif(extension.load() is None, reason="the native module is not in use"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

LARGE = (64, 40, 40)  # more than what is copied out of the slot


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "1")


def workers(loader):
    return loader.stats()["workers"]


class Samples(Dataset):
    """Sample i is full of i."""

    def __init__(self, count=24, shape=(40, 40), dtype=torch.float32):
        self.count, self.shape, self.dtype = count, shape, dtype

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full(self.shape, index, dtype=self.dtype), index


# --- what arrives -------------------------------------------------------------------------------


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

    assert words(FastLoader) == words(DataLoader)


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


# --- who holds a slot ---------------------------------------------------------------------------


def check(batch, first, count=4):
    images, labels = batch
    assert labels.tolist() == list(range(first, first + count))
    assert torch.equal(images, labels.view(-1, 1, 1).float().expand_as(images))


def test_every_batch_kept_is_right_though_slots_run_out():
    loader = FastLoader(Samples(160, shape=(80, 80)), batch_size=4, num_workers=2)
    for _epoch in range(2):
        kept = list(loader)
        for number, batch in enumerate(kept):
            check(batch, 4 * number)
        counted = workers(loader)
        assert counted["slots_held"] == counted["slots"]
        del batch, kept
        assert workers(loader)["slots_held"] == 0
    assert counted["slots_used"] + counted["fallbacks"] == 80
    assert counted["why"] == {"no slot was free": counted["fallbacks"]}


def test_a_view_keeps_its_slot():
    loader = FastLoader(Samples(400, shape=(80, 80)), batch_size=4, num_workers=2)
    iterator = iter(loader)
    row = next(iterator)[0][2, 3:5].numpy()
    second = next(iterator)[0].unbind()[1]
    for number, batch in enumerate(iterator, start=2):
        check(batch, 4 * number)
        assert (row == 2).all() and (second == 5).all()
    assert workers(loader)["fallbacks"] == 0
    del batch
    assert workers(loader)["slots_held"] == 2
    del row, second
    assert workers(loader)["slots_held"] == 0


def test_a_slot_comes_back_on_any_thread_and_after_the_loader():
    loader = FastLoader(Samples(16, shape=(80, 80)), batch_size=4, num_workers=1)
    held = [next(iter(loader))]
    assert workers(loader)["slots_held"] == 1
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert workers(loader)["slots_held"] == 0
    batch = next(iter(loader))
    loader.close()
    del loader
    check(batch, 0)


def test_kept_labels_keep_no_pictures():
    loader = FastLoader(Samples(400, shape=(80, 80)), batch_size=4, num_workers=2)
    kept = [labels for _images, labels in loader]
    assert torch.cat(kept).tolist() == list(range(400))
    assert workers(loader)["fallbacks"] == 0 and workers(loader)["slots_held"] == 0


def test_writing_into_a_batch_is_allowed():
    loader = FastLoader(Samples(80, shape=(80, 80)), batch_size=4, num_workers=2)
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
        batch[0].fill_(-1)
        batch[1].zero_()


class Cache(Samples):
    """Keeps what default_collate made of its samples, as torch's workers may."""

    def __init__(self):
        super().__init__(40, shape=(80, 80))
        self.cache = {}

    def __getitem__(self, index):
        key = index % 8
        if key not in self.cache:
            self.cache[key] = default_collate([torch.full((80, 80), float(key))])
        return self.cache[key], index


def test_a_worker_may_keep_what_it_collated():
    loader = FastLoader(Cache(), batch_size=4, num_workers=1)
    for _epoch in range(2):
        for batch in loader:
            for image, label in zip(*batch):
                assert (image == label % 8).all()
    assert workers(loader)["slots_used"] + workers(loader)["fallbacks"] == 20


class KeepLast:
    def __init__(self):
        self.last = []

    def __call__(self, samples):
        images, labels = default_collate(samples)
        for earlier, value in self.last:
            assert (earlier == value).all(), "a slot was written to under the worker's own tensor"
        self.last.append((images[1], labels[1].item()))
        return images, labels


def test_slots_that_a_worker_holds_for_ever_are_not_used_again():
    loader = FastLoader(Samples(160, (80, 80)), batch_size=4, num_workers=1, collate_fn=KeepLast())
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert workers(loader)["slots_used"] == workers(loader)["slots"]
    assert workers(loader)["why"] == {"the worker's own code holds its slots": 35}


class Chunks(IterableDataset):
    """Collates eight samples at once and yields them by four."""

    def __iter__(self):
        for first in range(0, 80, 8):
            images = default_collate([torch.full((80, 80), float(first + i)) for i in range(8)])
            labels = torch.arange(first, first + 8)
            yield images[:4].clone(), labels[:4]
            yield images[4:].contiguous(), labels[4:]
            yield images, labels


def test_an_iterable_dataset_may_collate_ahead():
    loader = FastLoader(Chunks(), batch_size=None, num_workers=1)
    for number, batch in enumerate(loader):
        first = 8 * (number // 3)
        if number % 3 == 2:
            check(batch, first, 8)
        else:
            check(batch, first + 4 * (number % 3))
    assert number == 29


class Shards(IterableDataset):
    """Worker 0 ends at once, worker 1 late: torch asks the ended one for batches all the same."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for index in range(1 if info.id == 0 else 60):
            yield torch.full((80, 80), float(index)), index


@pytest.mark.parametrize("persistent", [False, True])
def test_a_shard_that_ends_early_keeps_no_slot(persistent):
    loader = FastLoader(Shards(), batch_size=2, num_workers=2, persistent_workers=persistent)
    for _epoch in range(6):
        batches = list(loader)
        wanted = list(DataLoader(Shards(), batch_size=2, num_workers=2))
        assert [b[1].tolist() for b in batches] == [b[1].tolist() for b in wanted]
        del batches
    for _epoch in range(6):
        for batch in loader:
            assert (batch[0][0] == batch[1][0]).all()
    assert workers(loader)["slots_held"] <= 1


@pytest.mark.parametrize("persistent", [False, True])
def test_early_breaks_bring_every_slot_back(persistent):
    loader = FastLoader(
        Samples(400, (80, 80)), batch_size=4, num_workers=2, persistent_workers=persistent
    )
    for _epoch in range(10):
        for number, batch in enumerate(loader):
            check(batch, 4 * number)
            if number == 3:
                break
        del batch
    # A persistent iterator keeps what came before its turn until the next epoch begins.
    early = (
        sum(len(info) == 2 for info in loader._iterator._task_info.values()) if persistent else 0
    )
    counted = workers(loader)
    assert counted["fallbacks"] == 0 and counted["slots_held"] == early, counted
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert workers(loader)["fallbacks"] == 0


def test_out_of_order():
    pytest.importorskip("torch", minversion="2.6")
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=3, in_order=False)
    seen = []
    for images, labels in loader:
        assert torch.equal(images, labels.view(-1, 1, 1).float().expand_as(images))
        seen += labels.tolist()
    assert sorted(seen) == list(range(400))
    assert workers(loader)["slots_used"] > 0


def test_two_iterators_have_a_ring_each():
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=1)
    for number, (one, other) in enumerate(zip(loader, loader)):
        check(one, 4 * number)
        check(other, 4 * number)
        one[0].zero_()
        check(other, 4 * number)


class Sized(Samples):
    def __getitem__(self, index):
        return torch.full((1 << (20 if index == 2 else 10),), float(index)), index


def test_a_batch_that_does_not_fit_takes_torchs_way(monkeypatch):
    from fastloader._core.sources.python.shared_slots import ring

    monkeypatch.setattr(ring, "memory_limit", lambda: 1)  # slots of one megabyte
    loader = FastLoader(Sized(6), batch_size=1, num_workers=1)
    for index, (values, _label) in enumerate(loader):
        assert (values == index).all() and values.numel() == 1 << (20 if index == 2 else 10)
        assert values.is_shared() == (index == 2)
    assert workers(loader)["why"] == {"did not fit into a slot": 1}


def test_a_ring_that_cannot_be_had_is_said_once(monkeypatch, caplog):
    from fastloader._core.sources.python.shared_slots import ring

    monkeypatch.setattr(ring, "memory_limit", lambda: 1 << 60)
    loader = FastLoader(Samples(), batch_size=4, num_workers=1)
    with pytest.raises(Exception, match="bytes of shared memory failed"):
        iter(loader)
    monkeypatch.delenv("FASTLOADER_WORKER_RING")
    for _epoch in range(2):
        for number, batch in enumerate(loader):
            check(batch, 4 * number)
    said = [each.message for each in caplog.records if "torch's way" in each.message]
    assert len(said) == 1 and "shared memory failed" in said[0]
    assert "shared memory failed" in workers(loader)["why_no_ring"]


# --- other processes ----------------------------------------------------------------------------


def test_batches_can_be_copied_pickled_and_shared():
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    batch = next(iterator)
    copies = [copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))]
    shared = next(iterator)
    shared[0].share_memory_()
    assert shared[0].is_shared()
    for number, each in enumerate(iterator, start=2):
        check(each, 4 * number)
    del each, batch
    for each in copies:
        check(each, 0)
    check(shared, 4)
    assert workers(loader)["slots_held"] == 0  # sharing moved it to memory of its own


def receive(queue, answers):
    batch = queue.get()
    answers.put(batch[0].sum().item())
    queue.get()


def test_a_batch_can_be_sent_to_another_process():
    context = torch.multiprocessing.get_context("fork")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    process = context.Process(target=receive, args=(queue, answers), daemon=True)
    process.start()
    queue.put(next(iterator))
    for number, batch in enumerate(iterator, start=1):
        check(batch, 4 * number)
    assert answers.get() == (0 + 1 + 2 + 3) * 6400
    queue.put(None)
    process.join()


def test_a_forked_child_keeps_seeing_its_batches():
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    batch = next(iterator)
    go, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(go, 1)  # until the parent has had every other batch
            check(batch, 0)
            batch[0].fill_(7)
            del batch
            os._exit(0)
        finally:
            os._exit(1)
    del batch
    for number, each in enumerate(iterator, start=1):
        check(each, 4 * number)
    assert workers(loader)["fallbacks"] == 0
    os.write(tell, b"g")
    assert os.waitpid(child, 0)[1] == 0
    os.close(go), os.close(tell)
    # With the child gone, all slots serve again.
    del each
    for _epoch in range(2):
        for number, each in enumerate(loader):
            check(each, 4 * number)


class Holding(Samples):
    """A data set made of a batch of another loader, as a validation set may be."""

    def __init__(self, batch):
        super().__init__(40)
        self.batch = batch

    def __getitem__(self, index):
        return self.batch[0][index % 4].clone(), index % 4


def test_workers_forked_over_a_live_batch():
    first = FastLoader(Samples(200, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(first)
    second = FastLoader(
        Holding(next(iterator)), batch_size=4, num_workers=2, persistent_workers=True
    )
    check(next(iter(second)), 0)
    second.dataset.batch = None  # the workers still have it
    for number, each in enumerate(iterator, start=1):
        check(each, 4 * number)
    for _epoch in range(3):
        for batch in second:
            check(batch, 0)


def test_a_child_makes_rings_of_its_own():
    loader = FastLoader(Samples(40, (80, 80)), batch_size=4, num_workers=1)
    check(next(iter(loader)), 0)  # leaves an idle ring, which the parent goes on using
    child = os.fork()
    if child == 0:
        try:
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
            assert number == 9 and workers(loader)["slots_used"] >= 10
            os._exit(0)
        finally:
            os._exit(1)
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert os.waitpid(child, 0)[1] == 0


# --- what it costs ------------------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Descriptors(Samples):
    def __getitem__(self, index):
        return torch.full((80, 80), float(index)), descriptors()


def test_no_file_and_no_descriptor_for_a_batch():
    loader = FastLoader(Descriptors(400), batch_size=4, num_workers=2)
    iterator = iter(loader)
    kept = collections.deque([next(iterator)], maxlen=2)
    before = descriptors()
    in_worker = set()
    for number, batch in enumerate(iterator):
        kept.append(batch)
        if number % 10 == 5:
            assert descriptors() == before
            assert "/dev/shm/torch_" not in Path("/proc/self/maps").read_text()
            in_worker |= set(batch[1].tolist())
    assert len(in_worker) <= 2, in_worker  # one figure for each worker
    assert workers(loader)["fallbacks"] == 0


def mappings():
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:fastloader")


def test_the_ring_is_reused_and_its_memory_bounded():
    before = mappings()
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=2)
    list(loader)
    bytes_before = workers(loader)["ring_bytes"]
    for _epoch in range(5):
        for _batch in loader:
            pass
    del _batch
    assert mappings() == before + 1
    assert workers(loader)["ring_bytes"] <= max(bytes_before, 10 * 110_000)
    loader.close()
    eventually(lambda: not children(), children)
    assert mappings() == before
