"""More workers than processors: torch's warning on every path, and how many decode threads there are."""

import os
import re
import threading
import warnings

import numpy as np
import pytest
import torch
from pictures import plain_folder
from torch.utils.data import DataLoader, TensorDataset

from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose, PILToTensor
from support import Pictures, same

PROCESSORS = len(os.sched_getaffinity(0))
MANY = 17 * max(60, PROCESSORS)  # also more than 16 for each processor


def warned(make):
    """What is said of the workers."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        make()
    return [each for each in seen if "worker" in str(each.message)]


def first_sentence(workers):
    """torch's own."""
    (theirs,) = warned(lambda: DataLoader(Pictures(), num_workers=workers))
    return str(theirs.message).partition(". ")[0] + ". "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    transform = Compose([CenterCrop(16), PILToTensor()])
    return ImageFolder(
        str(plain_folder(tmp_path_factory.mktemp("few"), 12, size=(24, 20))), transform
    )


def arrays():
    return TensorDataset(torch.arange(8))


@pytest.mark.parametrize(
    "kind, dataset, options",
    [
        ("decode threads", "folder", {}),
        ("gather threads", arrays, {}),
        ("worker threads", Pictures, {"worker_backend": "thread"}),
        ("worker threads", "folder", {"worker_backend": "thread", "native": False}),
        ("Ray actors", Pictures, {"worker_backend": "ray"}),
        ("worker processes", Pictures, {}),
        ("worker processes", "folder", {"native": False}),
    ],
)
def test_the_warning(kind, dataset, options, request):
    if kind == "Ray actors":
        pytest.importorskip("ray")
    if kind in ("decode threads", "gather threads") and extension.load() is None:
        pytest.skip("the native module is not in use")
    data = request.getfixturevalue(dataset) if isinstance(dataset, str) else dataset()
    (seen,) = warned(lambda: FastLoader(data, 2, num_workers=MANY, **options))
    assert seen.category is UserWarning
    text = str(seen.message)
    assert text.startswith(first_sentence(MANY))
    # What PyTorch's own test looks for.
    assert re.search(
        r"excessive worker creation might get DataLoader running slow or even freeze", text
    )
    assert ("here these are" in text) == (kind != "worker processes")
    assert f"here these are {kind}" in text or kind == "worker processes"
    cut = kind == "decode threads"
    assert (f"of which fastloader starts {16 * available_threads()}" in text) == cut
    assert not warned(lambda: FastLoader(data, 2, num_workers=PROCESSORS, **options))


@pytest.mark.parametrize("dataset", ["folder", "arrays", "threads"])
def test_each_epoch_is_warned_of_as_well(dataset, folder):
    data = {"folder": folder, "arrays": arrays(), "threads": Pictures(4)}[dataset]
    options = {"worker_backend": "thread"} if dataset == "threads" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = FastLoader(data, 2, num_workers=PROCESSORS + 1, **options)
    (seen,) = warned(lambda: list(loader))
    assert str(seen.message).startswith(first_sentence(PROCESSORS + 1))
    loader.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")
def test_decode_threads_are_cut_and_nothing_else_changes(folder):
    few = FastLoader(
        folder, 4, shuffle=True, num_workers=1, generator=torch.Generator().manual_seed(1)
    )
    many = FastLoader(
        folder, 4, shuffle=True, num_workers=MANY, generator=torch.Generator().manual_seed(1)
    )
    same(list(many), list(few))
    assert many.num_workers == MANY
    cut = 16 * available_threads()
    assert many.stats()["images"]["threads"] == cut
    assert f"{cut} decode threads (16 for each processor, of num_workers={MANY})" in many.plan()
    at_the_limit = FastLoader(folder, 4, num_workers=cut)
    assert f"{cut} decode threads;" in at_the_limit.plan()


class Waiting(Pictures):
    """Each sample waits until as many threads as there are workers are in one."""

    def __init__(self, threads):
        super().__init__(threads)
        self.all_here = threading.Barrier(threads)

    def __getitem__(self, index):
        self.all_here.wait(60)
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_threads_of_the_users_code_are_not_cut():
    workers = 16 * available_threads() + 3
    loader = FastLoader(Waiting(workers), 1, num_workers=workers, worker_backend="thread")
    assert np.concatenate([batch[1] for batch in loader]).tolist() == list(range(workers))
    assert loader.num_workers == workers
    loader.close()
