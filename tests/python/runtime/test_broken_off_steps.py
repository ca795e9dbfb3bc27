"""Ctrl-C in each step of a ``next()``: the next call has the batch, with the
same pixels, and none comes twice."""

import pytest
import torch
from interrupts import interrupt_at_line, interrupts
from pictures import plain_folder
from thread_toy import ThreadToyIterator, ThreadToys, with_toys
from torch.utils.data import TensorDataset

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, EpochDraws, RandomErasing
from fastloader._core.delivery import cpu, streams
from fastloader._core.pictures.decoder import PendingBatch
from fastloader._core.sources import arrays, image_iterator
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures

pytestmark = pytest.mark.covering

needs_native = pytest.mark.skipif(
    fastloader._core.machine.extension.load() is None, reason="needs the native module"
)
DELIVERED = {"mean": MEAN, "std": STD, "device": "cpu"}


def of_pictures(_root, **options):
    return FastLoader(Pictures(12), batch_size=2, **DELIVERED, **options)


def erased(_root):
    loader = of_pictures(_root)
    loader._runtime.delivery.augment(Augmentation(RandomErasing(0.9, max_count=3), None))
    return loader


def of_arrays(_root, **options):
    images = torch.arange(60, dtype=torch.uint8).reshape(12, 5)
    return FastLoader(TensorDataset(images, torch.arange(12)), batch_size=2, **options)


def of_files(root, workers=2, **options):
    root.mkdir(exist_ok=True)
    if not any(root.iterdir()):
        plain_folder(root, 12, classes=12)
    files = ImageFolder(str(root), T.Resize((24, 20)))
    return FastLoader(files, batch_size=2, num_workers=workers, **options)


def of_files_delivered(root):
    return of_files(root, workers=0, **DELIVERED)


def of_thread_toys(_root):
    return with_toys(FastLoader(ThreadToys(torch.arange(60).reshape(12, 5)), batch_size=2))


def gathered_ahead(root):
    return of_arrays(root, num_workers=2)


STEPS = [
    ("cpu", of_pictures, cpu.CpuPath, "deliver"),
    ("cpu", erased, EpochDraws, "next"),
    ("streams", of_pictures, streams.StreamDelivery, "load"),
    ("streams", of_pictures, streams.StreamDelivery, "issue"),
    ("streams", erased, EpochDraws, "next"),
    ("twin", erased, EpochDraws, "next"),
    ("cpu", of_arrays, arrays.NativeArrays, "collated"),
    ("cpu", gathered_ahead, arrays.ArrayIterator, "_begin"),
    ("cpu", gathered_ahead, arrays.ArrayIterator, "_finish"),
    ("cpu", of_files, PendingBatch, "__init__"),
    ("cpu", of_files, image_iterator.ImageIterator, "_finished"),
]


@needs_native
@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]}-{step[1].__name__}-{step[3]}")
def test_ctrl_c_in_a_step(tmp_path, enter_way, monkeypatch, step, when):
    way, make, *call = step
    enter_way(way)
    torch.manual_seed(3)
    wanted = list(make(tmp_path / "f"))
    due = interrupts(monkeypatch, *call, when)
    hits = 0
    for at in range(len(wanted)):
        torch.manual_seed(3)
        loader = make(tmp_path / "f")
        iterator = iter(loader)
        seen = [next(iterator) for _ in range(at)]
        due.extend(range(2))
        while True:
            try:
                seen.append(next(iterator))
            except KeyboardInterrupt:
                hits += 1
            except StopIteration:
                break
            assert loader.state_dict()["batches"] == len(seen)
        due.clear()
        assert len(seen) == len(wanted)
        for got, right in zip(seen, wanted):
            assert torch.equal(got[0], right[0])
            assert torch.equal(got[1], right[1])
    assert hits >= 4


IMAGES, ARRAYS = image_iterator.ImageIterator, arrays.ArrayIterator
LINES = [
    ("cpu", of_files, [IMAGES._finished, torch.from_dlpack]),
    ("cpu", of_files, [IMAGES._top_up]),
    ("streams", of_files_delivered, [IMAGES._finished, IMAGES._top_up, torch.from_dlpack]),
    ("cpu", gathered_ahead, [ARRAYS._top_up]),
    ("cpu", of_thread_toys, [ThreadToyIterator._top_up]),
]


@needs_native
@pytest.mark.parametrize(
    ("way", "make", "functions"),
    LINES,
    ids=lambda part: part if isinstance(part, str) else getattr(part, "__name__", None),
)
def test_ctrl_c_at_a_line(tmp_path, enter_way, way, make, functions):
    """Before each line of these functions, within one ``next()`` in the middle of an epoch."""
    enter_way(way)
    wanted = list(make(tmp_path / "f"))
    hits = 0
    came = [True]
    while came:
        iterator = iter(make(tmp_path / "f"))
        seen = [next(iterator), next(iterator)]
        with interrupt_at_line(functions, hits) as came:
            try:
                seen.append(next(iterator))
            except KeyboardInterrupt:
                hits += 1
        seen += iterator
        assert len(seen) == len(wanted)
        for got, right in zip(seen, wanted):
            assert torch.equal(got[1], right[1])
            assert torch.equal(got[0], right[0])
    assert hits >= 4
