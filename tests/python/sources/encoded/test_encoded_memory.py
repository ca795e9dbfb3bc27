"""Encoded pictures are decoded where the device reads them."""

import gc
import weakref

import pytest
import torch
from encoded_samples import CROP, Captions, Views, paths_below
from pictures import plain_folder
from torch.utils.data import Dataset

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.delivery import engine
from support import MEAN, STD, require_hooks, same

WORKERS = [{}, {"num_workers": 2}, {"num_workers": 2, "worker_backend": "thread"}]


class Tokens(Dataset):
    """(picture, tokens, label)"""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return EncodedImage(self.paths[i], CROP), torch.arange(i, i + 7), i


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_below(plain_folder(tmp_path_factory.mktemp("plain"), 22, classes=1))


def epochs(dataset, count=3, **options):
    torch.manual_seed(3)
    loader = FastLoader(dataset, 4, shuffle=True, device="cpu", **options)
    return loader, [[[each.clone() for each in batch] for batch in loader] for _ in range(count)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
@pytest.mark.parametrize("normalized", [{}, {"mean": MEAN, "std": STD}], ids=["bytes", "floats"])
def test_only_labels_and_tokens_are_copied(paths, twin, enter_way, options, normalized):
    loader, got = epochs(Tokens(paths), **options, **normalized)
    ring = loader.stats()["ring"]
    assert ring["filled"] == 3 * 6
    assert ring["copied_bytes"] == 3 * 22 * (7 + 1) * 8
    assert ring["bytes"] > 3 * 22 * 24 * 24 * 3
    enter_way("cpu")
    _, wanted = epochs(Tokens(paths), **options, **normalized)
    same(got, wanted)


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_no_epoch_needs_more_memory_than_the_first(paths, twin, options):
    loader, _ = epochs(Tokens(paths), 1, **options)
    first = loader.stats()["ring"]["ring_bytes"]
    assert first > 0
    for _ in range(4):
        for _ in loader:
            pass
    workers = options.get("num_workers", 0)
    # A block for each batch that a worker may have made, and for those in the ring and on their way.
    blocks = 2 * workers + 3 + 2
    assert loader.stats()["ring"]["ring_bytes"] <= blocks * (4 * 24 * 24 * 3 + 4096) + 3 * 4096


def test_several_views_of_several_sizes_are_not_copied(paths, twin, enter_way):
    torch.manual_seed(3)
    loader = FastLoader(Views(paths), 4, device="cpu", num_workers=2)
    got = list(loader)
    pictures = 22 * (2 * 24 * 24 * 3 + 3 * 12 * 12 * 3 * 4)
    ring = loader.stats()["ring"]
    drawn = ring["copied_bytes"]
    assert 0 < drawn < pictures  # the targets, and what was drawn
    enter_way("cpu")
    torch.manual_seed(3)
    wanted = list(FastLoader(Views(paths), 4, num_workers=2))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_what_has_no_memory_of_the_device_is_copied(paths, twin, enter_way, tmp_path):
    """Batches of which samples were skipped are made anew."""
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    options = {"on_error": "skip", "num_workers": 2}
    dataset = Captions([*paths, str(bad)], T.Compose([*CROP.transforms, T.PILToTensor()]))
    torch.manual_seed(3)
    loader = FastLoader(dataset, 4, shuffle=True, device="cpu", **options)
    got = list(loader)
    assert loader.stats()["ring"]["copied_bytes"] >= 24 * 24 * 3
    enter_way("cpu")
    torch.manual_seed(3)
    wanted = list(FastLoader(dataset, 4, shuffle=True, **options))
    for batch, other in zip(got, wanted, strict=True):
        same(batch[0], other[0])


@pytest.mark.parametrize("options", WORKERS[1:], ids=str)
def test_epochs_that_end_early_spoil_nothing(paths, twin, enter_way, monkeypatch, options):
    """Blocks that the device is to read are not given to the next epoch."""
    require_hooks()
    monkeypatch.setattr(engine, "_twin_options", {"twin_delay_seed": 7})
    loader = FastLoader(Tokens(paths), 4, shuffle=True, device="cpu", **options)
    for taken in [0, 1, 3, 2, 5, 4] * 2:
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        del iterator
    torch.manual_seed(5)
    got = [[each.clone() for each in batch] for batch in loader]
    enter_way("cpu")
    other = FastLoader(Tokens(paths), 4, shuffle=True, **options)
    torch.manual_seed(5)
    same(got, [[each.clone() for each in batch] for batch in other])


def test_a_kept_loader_does_not_keep_the_memory(paths, twin):
    others = set(engine.live_engines)
    loader, _ = epochs(Tokens(paths), 1)
    (mine,) = set(engine.live_engines) - others
    memory = weakref.ref(mine.memory)
    del mine
    loader.close()
    gc.collect()
    assert memory() is None
    assert loader.replay(0)["steps"]


def test_memory_that_cannot_be_pinned_is_told(paths, twin, monkeypatch):
    require_hooks()
    monkeypatch.setattr(engine, "_twin_options", {"twin_unpinned": True})
    loader, _ = epochs(Tokens(paths), 1)
    ring = loader.stats()["ring"]
    assert ring["pinned"] is False
    assert "injected failure of pinning" in ring["why_not_pinned"]
