"""Files that are read before the decode threads want them: the same batches, the same errors."""

import random

import pytest
import torch
from pictures import plain_folder, random_folder, script, throttle

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.pictures.store import FolderStore
from fastloader.datasets import ImageFolder
from support import MEAN, STD, require_hooks, same

CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def epoch(loader, seed):
    torch.manual_seed(seed)
    return [[images.clone(), labels.clone()] for images, labels in loader]


def waited(loader):
    return loader.stats()["images"]["waited"]


@pytest.mark.parametrize("way", ["plain", "cpu", "twin", "streams"])
@pytest.mark.parametrize("ahead", ["0", "1"])
def test_batches_do_not_depend_on_who_reads(tmp_path, monkeypatch, enter_way, way, ahead):
    seed = random.randrange(1 << 20)
    random_folder(tmp_path, seed, each=3, others=True)
    enter_way("cpu" if way == "plain" else way)
    options = {"shuffle": True, "num_workers": 2}
    if way != "plain":
        options |= {"mean": MEAN, "std": STD, "device": "cpu"}
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", "0")
    expected = epoch(FastLoader(ImageFolder(tmp_path, CROPS), 5, **options), seed)
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", ahead)
    loader = FastLoader(ImageFolder(tmp_path, CROPS), 5, **options)
    for _ in range(2):
        same(epoch(loader, seed), expected)


def test_a_slow_disk_is_read_ahead_by_itself(tmp_path, monkeypatch):
    plain_folder(tmp_path, count=96)
    expected = epoch(FastLoader(ImageFolder(tmp_path, CROPS), 8, shuffle=True), 3)
    throttle(monkeypatch, FolderStore, 0.001)
    loader = FastLoader(ImageFolder(tmp_path, CROPS), 8, shuffle=True)
    same(epoch(loader, 3), expected)
    assert waited(loader) == 96


@pytest.mark.processes
@pytest.mark.parametrize("slow", [True, False])
def test_threads_read_a_slow_disk_and_no_other(tmp_path, slow):
    require_hooks()
    plain_folder(tmp_path, count=96)
    done = script(
        """
        import sys
        from pathlib import Path
        from fastloader import FastLoader, transforms as T
        from fastloader._core.machine import extension
        from fastloader._core.pictures.store import FolderStore
        from fastloader.datasets import ImageFolder
        from support import named_threads

        def slow(self):
            store = opened(self)
            store.source = extension.native.DelayedSource(store.source, 0.001)
            return store

        opened = FolderStore.opened
        if sys.argv[2] == "True":
            FolderStore.opened = slow
        for path, _ in ImageFolder(sys.argv[1]).samples:
            Path(path).read_bytes()
        loader = FastLoader(ImageFolder(sys.argv[1], T.CenterCrop(8)), 8, shuffle=True)
        list(loader)
        print("fl-read" in named_threads().values(), loader.stats()["images"]["waited"])
        """,
        tmp_path,
        slow,
    )
    assert done.stdout.split() == [str(slow), "96" if slow else "0"], done.stderr


def test_epochs_that_end_early_leave_nothing_behind(tmp_path, monkeypatch):
    seed = random.randrange(1 << 20)
    plain_folder(tmp_path, count=60)
    throttle(monkeypatch, FolderStore, 0.0005)
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", "1")
    rng = random.Random(seed)
    loader = FastLoader(ImageFolder(tmp_path, CROPS), 4, shuffle=True, num_workers=2)
    expected = epoch(loader, seed)
    for _ in range(20):
        iterator = iter(loader)
        for _ in range(rng.randrange(6)):
            next(iterator)
        if rng.random() < 0.5:
            iterator.close()
        del iterator
        if rng.random() < 0.2:
            loader.close()
    same(epoch(loader, seed), expected)


def test_a_file_that_goes_away_is_named(tmp_path, monkeypatch):
    plain_folder(tmp_path, count=24)
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", "1")
    dataset = ImageFolder(tmp_path, CROPS)
    gone = dataset.samples[13][0]
    loader = FastLoader(dataset, 4)
    next(iter(loader))
    (tmp_path / gone).unlink()
    with pytest.raises(Exception, match=gone.rsplit("/", 1)[1]):
        epoch(loader, 1)


@pytest.mark.processes
def test_the_first_epoch_of_a_forked_child_reads_ahead_too(tmp_path):
    plain_folder(tmp_path, count=24)
    done = script(
        """
        import os, sys
        import torch
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder

        chain = T.Compose([T.CenterCrop(8)])
        loader = FastLoader(ImageFolder(sys.argv[1], chain), 4, num_workers=2)
        iterator = iter(loader)
        first = next(iterator)[0].clone()
        child = os.fork()
        if not child:
            try:
                del iterator
                again = torch.cat([images for images, _ in loader])
                os._exit(0 if torch.equal(again[:4], first) and len(again) == 24 else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        rest = sum(len(images) for images, _ in iterator)
        print(os.waitstatus_to_exitcode(status), rest)
        """,
        tmp_path,
        env={"FASTLOADER_READ_AHEAD": "1"},
    )
    assert done.stdout.split() == ["0", "20"], done.stderr


def test_a_wrong_value_is_told(tmp_path, monkeypatch):
    plain_folder(tmp_path, count=4)
    monkeypatch.setenv("FASTLOADER_READ_AHEAD", "yes")
    with pytest.raises(ValueError, match="FASTLOADER_READ_AHEAD='yes': use 0"):
        epoch(FastLoader(ImageFolder(tmp_path, CROPS), 2), 1)
