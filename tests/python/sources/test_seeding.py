"""A worker_init_fn that only seeds has nothing to do where decode threads make the pictures. Any other
is called, as torch has it: in each worker process, and never without workers."""

import functools
import importlib
import logging
import os
import random

import numpy
import numpy as np
import pytest
import torch
from pictures import plain_folder
from torch.utils.data import TensorDataset, get_worker_info

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.sources import worker_info
from fastloader._core.sources.seeding import only_seeds
from fastloader.datasets import ImageFolder

state = {"calls": 0}
generator = None


def of_torchs_notes(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    numpy.random.seed(worker_seed)
    random.seed(worker_seed)


def of_worker_info(worker_id):
    info = torch.utils.data.get_worker_info()
    np.random.seed((info.seed + info.id) % 2**32)


def with_a_base(worker_id, base=3):
    torch.manual_seed(base + worker_id)
    for seed in (np.random.seed, random.seed):
        seed(base + worker_id)


def by_another(worker_id):
    import random as mine

    if get_worker_info() is not None:
        with_a_base(worker_id, max(1, int(mine.random())))


def of_closure(base):
    return lambda worker_id: np.random.seed(base + worker_id)


def of_numpys_state(worker_id):
    np.random.seed(np.random.get_state()[1][0] + worker_id)


def of_pythons_state(worker_id):
    random.seed(random.getstate()[1][0] + worker_id)


def asserts(worker_id):
    assert worker_id < 0


def raises(worker_id):
    raise max(worker_id, 0)


def logs(worker_id):
    np.random.seed(worker_id)
    logging.getLogger().warning("worker %s", worker_id)


def changes_the_dataset(worker_id):
    get_worker_info().dataset.transform = None


def counts(worker_id):
    state["calls"] += 1


def sets_a_global(worker_id):
    global generator
    generator = np.random


def pins(worker_id):
    os.sched_setaffinity(0, {worker_id})


def sets_threads(worker_id):
    torch.manual_seed(1)
    torch.set_num_threads(1)


def counted():
    calls = 0

    def count(worker_id):
        nonlocal calls
        calls += 1

    return count


class Seeds:
    def __call__(self, worker_id):
        np.random.seed(worker_id)


SEEDING = [
    of_torchs_notes,
    of_worker_info,
    with_a_base,
    by_another,
    of_numpys_state,
    of_pythons_state,
    of_closure(3),
    functools.partial(with_a_base, base=9),
    lambda worker_id: torch.manual_seed(worker_id),
    torch.manual_seed,
    np.random.seed,
    random.seed,
]
OTHERS = [
    asserts,
    raises,
    logs,
    changes_the_dataset,
    counts,
    sets_a_global,
    pins,
    sets_threads,
    counted(),
    of_closure(print),
    functools.partial(with_a_base, base=[]),
    functools.partial(print, "worker"),
    Seeds(),
    print,
    functools.wraps(of_torchs_notes)(lambda worker_id: print(worker_id)),
]


def name_of(function):
    return getattr(function, "__name__", type(function).__name__)


@pytest.mark.parametrize("init", SEEDING, ids=name_of)
def test_what_only_seeds(init):
    assert only_seeds(init)


@pytest.mark.parametrize("init", OTHERS, ids=name_of)
def test_what_does_more(init):
    assert not only_seeds(init)


FUNCTIONS = [
    (random, "seed", lambda worker_id: random.seed(worker_id)),
    (np.random, "seed", lambda worker_id: np.random.seed(worker_id)),
    (np.random, "get_state", of_numpys_state),
    (torch, "manual_seed", lambda worker_id: torch.manual_seed(worker_id)),
    (torch, "initial_seed", of_torchs_notes),
    (torch.utils.data, "get_worker_info", of_worker_info),
]


@pytest.mark.parametrize(
    ("module", "name", "init"),
    FUNCTIONS,
    ids=[f"{each[0].__name__}.{each[1]}" for each in FUNCTIONS],
)
def test_functions_that_were_replaced_do_more(monkeypatch, module, name, init):
    assert only_seeds(init)
    before = getattr(module, name)
    assert only_seeds(before)

    @functools.wraps(before)
    def logged(*args):
        logging.getLogger().warning("%s", args)
        return before(*args)

    monkeypatch.setattr(module, name, logged)
    assert not only_seeds(init)
    assert not only_seeds(logged)
    assert only_seeds(lambda worker_id: torch.random.manual_seed(worker_id)) == (
        name != "manual_seed"
    )
    monkeypatch.setattr(module, name, Seeds())
    assert not only_seeds(init)
    monkeypatch.undo()
    assert only_seeds(init)


@pytest.mark.parametrize("decorated", [False, True])
def test_a_function_of_torch_with_other_code(monkeypatch, decorated):
    """`decorated`: as torch does when its compiler is imported, which a test before may have done."""
    own = getattr(torch.manual_seed, "__wrapped__", torch.manual_seed)
    function = torch._compile._disable_dynamo(own) if decorated else own
    monkeypatch.setattr(torch, "manual_seed", function)
    monkeypatch.setattr(torch.random, "manual_seed", function)
    assert only_seeds(torch.manual_seed)
    fn = recursive = None  # what the code of the decorated one has from around it
    other = (lambda seed: print(seed, fn, recursive)) if decorated else lambda seed: print(seed)
    monkeypatch.setattr(torch.manual_seed, "__code__", other.__code__)
    assert not only_seeds(torch.manual_seed)
    assert not only_seeds(with_a_base)


def test_timms_own():
    from pictures import import_timm

    import_timm()
    from timm.data.loader import _worker_init

    assert only_seeds(_worker_init)
    assert only_seeds(functools.partial(_worker_init, worker_seeding="all"))
    assert not only_seeds(functools.partial(_worker_init, worker_seeding=print))


@pytest.fixture
def folder(tmp_path):
    root = plain_folder(tmp_path / "plain", 4)
    return ImageFolder(root, T.Compose([T.Resize((12, 10)), T.PILToTensor()]))


@pytest.mark.skipif(extension.load() is None, reason="needs the native module")
@pytest.mark.parametrize("arrays", [False, True], ids=["pictures", "arrays"])
def test_the_plan(folder, arrays):
    dataset = TensorDataset(torch.arange(4)) if arrays else folder
    native = "arrays: " if arrays else "native images: "
    for init, workers, begin in (
        (of_torchs_notes, 2, native),
        (of_torchs_notes, 0, native),
        (counts, 0, native),
        (counts, 2, "Python path: "),
    ):
        loader = FastLoader(dataset, 2, num_workers=workers, worker_init_fn=init)
        assert loader.plan().startswith(begin), loader.plan()
        assert begin == native or f"worker_init_fn is {__name__}.counts" in loader.plan()


def test_it_is_never_called_without_workers(folder):
    before = state["calls"]
    assert len([*FastLoader(folder, 2, worker_init_fn=counts)]) == 2
    assert len([*FastLoader(folder, 2, worker_init_fn=counts, collate_fn=len)]) == 2
    assert state["calls"] == before


def numbered(samples):
    return [np.random.randint(1 << 30) for _ in samples]


def test_it_is_called_where_a_worker_collates(folder):
    """By a function of one's own, of pictures that began natively."""
    loader = FastLoader(
        folder,
        2,
        num_workers=1,
        worker_init_fn=functools.partial(with_a_base, base=5),
        collate_fn=numbered,
    )
    before = np.random.get_state()
    np.random.seed(5)
    wanted = [np.random.randint(1 << 30) for _ in range(4)]
    np.random.set_state(before)
    assert [each for batch in loader for each in batch] == wanted


def test_what_torch_decorates_when_its_compiler_is_imported_still_seeds():
    importlib.import_module("torch._dynamo")
    assert only_seeds(lambda worker: torch.manual_seed(worker))
    assert only_seeds(functools.partial(torch.manual_seed))


def test_worker_threads_change_nothing_about_it():
    worker_info.teach()
    assert only_seeds(of_worker_info)
    assert only_seeds(functools.partial(by_another))
