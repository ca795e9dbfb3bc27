"""Datasets of arrays are gathered. What arrives equals DataLoader's, and lies in ordinary memory."""

import gc
import os
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, StackDataset, Subset, TensorDataset, random_split

from fastloader import FastLoader
from support import MEAN, STD, children, labels, random_images, run_script, same

WORKERS = pytest.mark.parametrize("workers", [0, 2])
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.uint16,
]
if torch.torch_version.TorchVersion(torch.__version__) >= (2, 13):  # earlier ones cannot collate it
    DTYPES.append(torch.float8_e5m2)


@pytest.fixture
def rng():
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)  # pytest shows it with a failure
    return random.Random(seed)


def on_arrays(loader):
    assert loader.plan().startswith("arrays:"), loader.plan()
    return loader


def same_batch(got, wanted):
    """Containers, dtypes, shapes, strides and bytes."""
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted):
            same_batch(one, other)
        return
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert got.stride() == wanted.stride() and got.storage_offset() == 0
    assert not got._is_view() and got.is_leaf and not got.requires_grad
    assert bytes_of(got) == bytes_of(wanted)


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_tensor(rng, rows, dtype=None):
    dtype = dtype or rng.choice(DTYPES)
    shape = [rows] + [rng.choice([0, 1, 2, 3, 5, 17, 70]) for _ in range(rng.randrange(4))]
    size = torch.empty(0, dtype=dtype).element_size()
    if dtype is torch.bool:
        tensor = torch.randint(0, 2, shape, dtype=torch.uint8).bool()
    else:
        tensor = torch.randint(0, 256, (*shape, size), dtype=torch.uint8).view(dtype)[..., 0]
        tensor = tensor.contiguous()
    form = rng.randrange(8)
    if form == 0:  # every other row of a larger one
        tensor = torch.stack([tensor, tensor], 1).flatten(0, 1)[::2]
    elif form == 1 and tensor.dim() > 1:  # part of each row
        tensor = torch.stack([tensor, tensor], -1)[..., 0]
    elif form == 2 and tensor.dim() > 2:  # rows that lie transposed
        tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    elif form == 3:  # one row for all
        tensor = tensor[:1].expand(tensor.shape)
    elif form == 4:
        tensor = tensor.clone().share_memory_()
    return tensor


def random_array(rng, rows, folder):
    dtype = rng.choice(["u1", "i4", "f2", "f4", "f8", "c8", "?", "i8"])
    array = np.frombuffer(rng.randbytes(rows * 12 * np.dtype(dtype).itemsize), dtype=np.uint8)
    array = (array & 1).view("?")[: rows * 12] if dtype == "?" else array.view(dtype)
    if rng.random() < 0.8:
        array = array.copy().reshape(rows, 3, 4)
    else:  # numpy's scalars go through a double, which tells some NaNs from others no more
        array = np.nan_to_num(array[:rows])
    if rng.random() < 0.5:
        path = folder / f"{rng.random()}.bin"
        array.tofile(path)
        array = np.memmap(path, dtype=array.dtype, mode="r+", shape=array.shape)
    return array


def random_dataset(rng, rows, folder, depth=0):
    kind = rng.randrange(6 if depth < 3 else 3)
    if kind < 2:
        return TensorDataset(*(random_tensor(rng, rows) for _ in range(rng.randrange(1, 4))))
    if kind == 2:
        return random_tensor(rng, rows) if rng.random() < 0.5 else random_array(rng, rows, folder)
    if kind == 3:
        inner = random_dataset(rng, rows + rng.randrange(9), folder, depth + 1)
        picked = [rng.randrange(-len(inner), len(inner)) for _ in range(rows)]
        form = rng.randrange(3)
        return Subset(inner, [picked, torch.tensor(picked), np.array(picked)][form])
    parts = [random_dataset(rng, rows, folder, depth + 1) for _ in range(rng.randrange(1, 4))]
    return (
        StackDataset(*parts)
        if kind == 4
        else StackDataset(**{f"k{i}": p for i, p in enumerate(parts)})
    )


def test_random_structures(enter_way, rng, tmp_path):
    for number in range(120):
        enter_way(rng.choice(["cpu", "cpu", "pure"]))
        rows = rng.randrange(1, 60)
        dataset = random_dataset(rng, rows, tmp_path)
        options = {
            "batch_size": rng.randrange(1, 20),
            "shuffle": rng.random() < 0.7,
            "drop_last": rng.random() < 0.3,
        }
        loader = on_arrays(FastLoader(dataset, num_workers=rng.choice([0, 0, 1, 3]), **options))
        torch.manual_seed(number)
        wanted = list(DataLoader(dataset, **options))
        torch.manual_seed(number)
        got = list(loader)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted):
            same_batch(one, other)
        assert loader.stats()["arrays"]["torch_batches"] == 0


def test_a_sequential_sampler_in_chunks(monkeypatch):
    monkeypatch.setattr("fastloader._core.sources.arrays.CHUNK", 7)
    x = torch.arange(23)
    for size, last in ((3, False), (7, True), (10, False), (30, False)):
        loader = on_arrays(FastLoader(x, batch_size=size, drop_last=last))
        wanted = DataLoader(x, batch_size=size, drop_last=last)
        assert [b.tolist() for b in loader] == [b.tolist() for b in wanted]


class Subclass(TensorDataset):
    def __getitem__(self, index):
        return super().__getitem__(-1 - index)


X = torch.arange(6.0)

REFUSED = {
    "subclass": (Subclass(X), {}, "Subclass"),
    "requires grad": (TensorDataset(X.clone().requires_grad_()), {}, "requires grad"),
    "parameter": (TensorDataset(torch.nn.Parameter(X)), {}, "Parameter"),
    "conjugate": (TensorDataset(torch.ones(6, dtype=torch.cfloat).conj()), {}, "dense"),
    "sparse": (TensorDataset(torch.eye(6).to_sparse()), {}, "dense"),
    "backwards": (np.arange(6)[::-1], {}, "backwards"),
    "foreign": (np.arange(6, dtype=">i4"), {}, "foreign"),
    "text": (np.array(["a"] * 6), {}, "<U1"),
    "collate_fn": (TensorDataset(X), {"collate_fn": list}, "collate_fn"),
    "batch_size": (TensorDataset(X), {"batch_size": None}, "batch_size=None"),
    "worker_init_fn": (
        TensorDataset(X),
        {"worker_init_fn": print, "num_workers": 1},
        "worker_init_fn",
    ),
    "native": (TensorDataset(X), {"native": False}, "native=False"),
    "subset": (Subset(TensorDataset(X), [0.5]), {}, "whole numbers"),
    "ragged subset": (Subset(TensorDataset(X), [0, [1, 2], 3]), {}, "whole numbers"),
    "other": (Subset([1, 2], [0]), {}, "Subset"),
    "stack": (StackDataset(X, [1, 2, 3, 4, 5, 6]), {}, "StackDataset"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_torch(name):
    dataset, options, reason = REFUSED[name]
    loader = FastLoader(dataset, **options)
    plan = loader.plan()
    assert "Python path" in plan and (reason in plan or name in ("other",)), plan
    try:
        wanted = [
            str(batch)
            for batch in DataLoader(dataset, **{k: v for k, v in options.items() if k != "native"})
        ]
    except Exception as error:
        with pytest.raises(type(error)):
            list(loader)
    else:
        assert [str(batch) for batch in loader] == wanted


def test_grad_history_is_kept():
    x = torch.randn(6, 2, requires_grad=True)
    for (batch,) in FastLoader(TensorDataset(x), batch_size=3):
        batch.sum().backward()
    assert torch.equal(x.grad, torch.ones(6, 2))


def test_an_extended_default_collate(monkeypatch):
    from torch.utils.data._utils import collate

    monkeypatch.setitem(
        collate.default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map: "mine"
    )
    assert list(FastLoader(torch.arange(4), batch_size=4)) == ["mine"]


def test_without_workers_values_are_read_when_a_batch_is_asked_for(enter_way):
    for name in ("cpu", "pure"):
        enter_way(name)
        x = torch.zeros(6)
        seen = []
        for batch in FastLoader(x, batch_size=2):
            seen.append(batch.tolist())
            x += 1
        assert seen == [[0, 0], [1, 1], [2, 2]]
        assert [b.tolist() for b in FastLoader(x, batch_size=6)] == [[3] * 6]


def test_memory_taken_away_in_the_middle_of_an_epoch():
    """By resize_ it moves, by the storage's resize_ it is gone: no stale address is ever read."""
    x = torch.arange(4000.0)
    iterator = iter(FastLoader(x, batch_size=1000, num_workers=0))
    assert torch.equal(next(iterator), torch.arange(1000.0))
    x.resize_(4_000_000)
    assert torch.equal(next(iterator), torch.arange(1000.0, 2000.0))
    x.untyped_storage().resize_(0)
    with pytest.raises(Exception):
        next(iterator)


@WORKERS
def test_large_batches_live_in_recycled_memory(workers):
    x = torch.randn(64, 3, 64, 64)
    loader = on_arrays(
        FastLoader(TensorDataset(x, torch.arange(64)), batch_size=8, num_workers=workers)
    )
    for _ in range(4):
        for _images, _labels in loader:
            pass
    buffers = loader.stats()["arrays"]["buffers"]
    assert buffers["made"] + buffers["recycled"] == 32 and buffers["made"] <= 6
    kept = list(loader)
    views = [batch[0][3:, 1] for batch in kept]
    copies = [view.clone() for view in views]
    del kept, _images
    for _ in range(3):
        for images, _ in loader:
            images.fill_(-7)
    assert all(torch.equal(a, b) for a, b in zip(views, copies))
    loader.close()
    del loader
    gc.collect()
    assert all(torch.equal(a, b) for a, b in zip(views, copies))


@WORKERS
def test_batches_behave_as_any_tensor(workers):
    x = torch.randn(8, 3, 100, 100)
    for (images,) in FastLoader(TensorDataset(x), batch_size=4, num_workers=workers):
        images.requires_grad_()
        (images * 2).sum().backward()
        images.detach_()
        images.add_(1)
        assert torch.equal(pickle.loads(pickle.dumps(images)), images)
        images.share_memory_()
        images.resize_(1, 2)


@WORKERS
def test_two_iterators_at_once_and_early_ends(workers):
    x = torch.arange(100)
    loader = on_arrays(FastLoader(x, batch_size=7, num_workers=workers))
    wanted = [batch.tolist() for batch in DataLoader(x, batch_size=7)]
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)] == list(zip(wanted, wanted))
    for number in range(50):
        for position, batch in enumerate(loader):
            assert batch.tolist() == wanted[position]
            if position == number % 5:
                break
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(StopIteration):
        next(iterator)
    assert [batch.tolist() for batch in loader] == wanted
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert [batch.tolist() for batch in again] == wanted
    assert len(iter(loader)) == len(loader) == len(wanted)


@WORKERS
def test_pictures_in_arrays_are_normalised(way, workers):
    data = TensorDataset(random_images(3, 20, 3, 9, 8), torch.arange(20))
    options = {"batch_size": 6, "num_workers": workers, "mean": MEAN, "std": STD, **way.options}
    loader = on_arrays(FastLoader(data, **options))
    plain = FastLoader(data, native=False, **{**options, "num_workers": 0})
    assert labels(loader) == labels(plain)
    for (images, _), (wanted, _) in zip(loader, plain, strict=True):
        assert torch.equal(images, wanted)
    assert loader.stats()["batches"] == 8
    loader.close()


def test_random_split_and_shuffle():
    x, y = torch.randn(50, 4), torch.arange(50)
    train, rest = random_split(TensorDataset(x, y), [0.8, 0.2])
    for part in (train, rest):
        loader = on_arrays(FastLoader(part, batch_size=7, shuffle=True))
        assert "Subset of TensorDataset of 2 tensors" in loader.plan()
        seen = []
        for rows, numbers in loader:
            assert torch.equal(rows, x[numbers])
            seen += numbers.tolist()
        assert sorted(seen) == sorted(part.indices)


def test_no_process_is_started():
    before = children()
    iterator = iter(FastLoader(torch.arange(600), batch_size=2, num_workers=2))
    next(iterator)
    assert children() == before and not iterator._workers


def test_none_of_torchs_complaints_is_lost():
    x = torch.arange(6)
    with pytest.raises(AssertionError):
        iter(FastLoader(x, timeout=1))
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        iter(DataLoader(x, pin_memory=True))
    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        iter(FastLoader(x, pin_memory=True))
    assert [str(w.message) for w in ours] == [str(w.message) for w in theirs]


FORK = """
    import os, sys, torch
    torch.set_num_threads(1)  # OpenMP does not survive a fork
    from fastloader import FastLoader

    workers = int(sys.argv[1])
    x = torch.randn(64, 40000)
    loader = FastLoader(x, batch_size=16, num_workers=workers)
    right = list(loader)
    iterator = iter(loader)
    kept = next(iterator)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert torch.equal(kept, right[0])
            try:
                again = next(iterator)
            except RuntimeError as error:
                assert workers and str(os.getpid()) in str(error), error
            else:
                assert not workers and torch.equal(again, right[1])
            del iterator, kept
            assert all(torch.equal(a, b) for a, b in zip(loader, right, strict=True))
            loader.close()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(torch.equal(a, b) for a, b in zip(iterator, right[1:], strict=True))
    print("done")
"""


@pytest.mark.processes
@WORKERS
def test_fork(workers):
    assert run_script(FORK, workers).stdout == "done\n"


@pytest.mark.processes
def test_the_process_ends_with_an_epoch_in_flight():
    source = """
        import torch
        from fastloader import FastLoader
        iterator = iter(FastLoader(torch.randn(64, 1 << 18), batch_size=16, num_workers=2))
        next(iterator)
        print("end")
    """
    done = run_script(source, fresh=True)
    assert done.stdout == "end\n" and done.stderr == ""


@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: Subset(each, [0, 2, 1])])
def test_numbers_that_default_collate_refuses(wrap):
    """Those of uint64, which torch makes no tensor of; its rows are arrays, of which it does."""
    numbers = np.arange(6, dtype=np.uint64)
    for kind in (DataLoader, FastLoader):
        with pytest.raises(TypeError, match="an integer is required"):
            next(iter(kind(wrap(numbers), 2)))
    rows = wrap(numbers.reshape(3, 2))
    same(list(FastLoader(rows, 2)), list(DataLoader(rows, 2)))
