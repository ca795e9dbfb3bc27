"""A torch newer than the one this was written with: worker_method, and arguments of DataLoader that are
not known yet."""

import copy
import os
import pickle
import warnings

import pytest
import torch
from newer_torch import NEWER_TORCH
from side_by_side import rebuilt
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fastloader import FastLoader
from fastloader._core.sources.python.arguments import of_torch
from support import Pictures, run_script


class Numbers(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return index, getattr(info, "worker_method", None)


# It still works. That it warns, and when not: test_worker_method_is_deprecated.
old_name = pytest.mark.filterwarnings("ignore:worker_method:DeprecationWarning")


@old_name
@pytest.mark.parametrize(
    ("method", "backend"), [("thread", "thread"), ("multiprocessing", "process")]
)
def test_worker_method_is_worker_backend(method, backend):
    loader = FastLoader(Numbers(), batch_size=None, num_workers=2, worker_method=method)
    assert (loader.worker_method, loader.worker_backend) == (method, backend)
    assert [each[0] for each in loader] == list(range(7))
    assert ("threads" in loader.plan()) == (method == "thread")
    other = FastLoader(Numbers(), num_workers=2, worker_backend=backend)
    assert (other.worker_method, other.worker_backend) == (method, backend)
    for again in (rebuilt(loader), rebuilt(other)):
        assert (again.worker_method, again.worker_backend) == (method, backend)


@old_name
def test_either_name_may_be_set():
    loader = FastLoader(Numbers(), num_workers=2)
    loader.worker_method = "thread"
    assert rebuilt(loader).worker_backend == loader.worker_backend == "thread"
    loader.worker_backend = "process"
    assert rebuilt(loader).worker_method == loader.worker_method == "multiprocessing"


@pytest.mark.parametrize(
    ("method", "backend"), [("thread", "thread"), ("multiprocessing", "process")]
)
def test_worker_method_is_deprecated(method, backend):
    """The user is warned of what the user wrote, and nobody of what a framework reads off a loader."""
    with pytest.warns(DeprecationWarning) as caught:
        loader = FastLoader(Numbers(), num_workers=2, worker_method=method)
    assert [each.filename for each in caught] == [__file__]
    assert str(caught[0].message) == (
        f"worker_method='{method}' is deprecated since fastloader 0.2 and will be gone in 0.4: use "
        f"worker_backend='{backend}'"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (loader, FastLoader(Numbers(), worker_backend=backend)):
            copied = pickle.loads(pickle.dumps(other))
            again = rebuilt(rebuilt(copy.deepcopy(copied)))
            again.worker_method = loader.worker_method
            again.worker_backend = "thread"
            assert again.worker_method == "thread"
    with pytest.warns(DeprecationWarning) as caught:
        again.worker_method = method
    assert [each.filename for each in caught] == [__file__]
    assert f"use worker_backend = '{backend}'" in str(caught[0].message)


def test_worker_method_is_not_deprecated_where_torch_has_it(monkeypatch):
    torchs = DataLoader.__init__

    def newer(self, dataset, *args, worker_method="multiprocessing", **named):
        self.worker_method = worker_method
        torchs(self, dataset, *args, **named)

    monkeypatch.setattr(DataLoader, "__init__", newer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = FastLoader(Numbers(), worker_method="thread")
        loader.worker_method = "multiprocessing"
    assert loader.worker_backend == "process"


@old_name
def test_worker_methods_that_are_refused():
    with pytest.raises(
        ValueError, match="worker_method='process': use 'multiprocessing' or 'thread'"
    ):
        FastLoader(Numbers(), worker_method="process")
    with pytest.raises(ValueError, match="give one of the two"):
        FastLoader(Numbers(), worker_backend="thread", worker_method="multiprocessing")
    with pytest.raises(ValueError, match="multiprocessing_context is for"):
        FastLoader(
            Numbers(), num_workers=1, worker_method="thread", multiprocessing_context="spawn"
        )


def test_an_argument_that_no_torch_has():
    with pytest.raises(TypeError, match="unexpected keyword argument 'brand_new'"):
        FastLoader(Numbers(), brand_new=1)


def test_an_argument_that_this_torch_has_got_meanwhile(monkeypatch):
    torchs = DataLoader.__init__

    def newer(self, dataset, *args, brand_new=0, **named):
        self.brand_new = brand_new
        torchs(self, dataset, *args, **named)

    monkeypatch.setattr(DataLoader, "__init__", newer)
    assert FastLoader(Numbers(), brand_new=3).brand_new == 3
    assert FastLoader(Numbers()).brand_new == 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'brandnew'"):
        FastLoader(Numbers(), brandnew=3)


@pytest.mark.processes
def test_a_newer_torch():
    done = run_script(
        """
        import inspect
        import torch.utils.data.dataloader as module

        torchs = module.DataLoader.__init__

        def newer(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,
                  num_workers=0, collate_fn=None, pin_memory=False, drop_last=False, timeout=0,
                  worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                  prefetch_factor=None, persistent_workers=False, pin_memory_device="",
                  in_order=True, worker_method="multiprocessing", brand_new=0):
            self.worker_method = worker_method
            self.brand_new = brand_new
            print("torch got", worker_method, brand_new)
            torchs(self, dataset, batch_size, shuffle, sampler, batch_sampler, num_workers,
                   collate_fn, pin_memory, drop_last, timeout, worker_init_fn,
                   multiprocessing_context, generator, prefetch_factor=prefetch_factor,
                   persistent_workers=persistent_workers)

        module.DataLoader.__init__ = newer
        """
        + NEWER_TORCH.replace("\n", "\n        ")
        + """
        for options in ({}, {"worker_method": "thread", "brand_new": 5}, {"worker_backend": "thread"}):
            loader = FastLoader(Data(), batch_size=None, num_workers=2, **options)
            print(loader.worker_method, loader.worker_backend, loader.brand_new, list(loader))
        ours = inspect.signature(FastLoader.__init__).parameters
        theirs = inspect.signature(newer).parameters
        assert list(ours)[:len(theirs)] == list(theirs), list(ours)
        assert all(ours[name].default == theirs[name].default for name in theirs)
        assert "brand_new" in inspect.signature(FastLoader).parameters
        """
    )
    assert done.stdout.splitlines() == [
        "torch got multiprocessing 0",
        "multiprocessing process 0 [0, 1, 0, 1]",
        "torch got thread 5",
        "thread thread 5 [0, 1, 0, 1]",
        "torch got thread 0",
        "thread thread 0 [0, 1, 0, 1]",
    ]


# As a monitoring tool may do it: what it has wrapped no longer shows.
WRAPPED = """
import inspect
import torch.utils.data.dataloader as module

torchs = module.DataLoader.__init__
arguments = inspect.signature(torchs).parameters
taken = []

def wrapped({parameters}, **named):
    taken.append(named)
    torchs({parameters}, **named)

module.DataLoader.__init__ = wrapped
from fastloader import FastLoader

loader = FastLoader(range(8), batch_size=2, num_workers=2, worker_backend="thread")
assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
assert ("worker_method" in taken[-1]) == ("worker_method" in arguments)
if "in_order" in arguments:
    assert FastLoader(range(8), in_order=False).in_order is False
ours = inspect.signature(FastLoader).parameters
assert list(ours)[:3] == ["dataset", "batch_size", "shuffle"], list(ours)
assert not {{"args", "named", "data", "this"}} & {{*ours}}, list(ours)
try:
    FastLoader(range(8), brandnew=1)
except TypeError as error:
    print(error)
"""


@pytest.mark.processes
@pytest.mark.parametrize("parameters", ["*args", "this, *args", "self, data, *args"])
def test_a_constructor_that_was_wrapped_before_the_import(parameters):
    done = run_script(WRAPPED.format(parameters=parameters), fresh=True)
    assert "unexpected keyword argument 'brandnew'" in done.stdout


def test_a_constructor_that_no_longer_shows_its_arguments(monkeypatch):
    """They are read where torch has written them."""
    wanted = of_torch()
    torchs = DataLoader.__init__
    monkeypatch.setattr(DataLoader, "__init__", lambda *args, **named: torchs(*args, **named))
    assert of_torch() == wanted
    assert FastLoader(range(3), num_workers=1, prefetch_factor=3).prefetch_factor == 3


# --- the warning of too many processes --------------------------------------------------------------


def warned(make):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loader = make()
        list(loader)
        loader.close()
    return [str(each.message) for each in seen if "worker processes" in str(each.message)]


def test_too_many_processes_are_warned_of(monkeypatch):
    """As with DataLoader: when the loader is made, and when they begin."""
    monkeypatch.setattr(torch._utils, "cpu_count", lambda: 1, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})  # asked by earlier versions
    options = {"num_workers": 2, "batch_size": 2}
    theirs = warned(lambda: Closing(Pictures(4), **options))
    assert theirs and "will create 2 worker processes" in theirs[0]
    assert warned(lambda: FastLoader(Pictures(4), **options)) == theirs
    native_off = {"native": False, **options}
    assert warned(lambda: FastLoader(TensorDataset(torch.arange(9)), **native_off)) == theirs


class Closing(DataLoader):
    def close(self):
        pass
