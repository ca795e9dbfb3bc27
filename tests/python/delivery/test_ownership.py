"""Batches are ordinary tensors, and their memory is recycled only when nobody can see it."""

import copy
import gc
import io
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from exact import normalised, same_bits
from fastloader import FastLoader
from support import MEAN, STD, Pictures, run_script

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}


def make(way, data=None, **options):
    options = {"batch_size": 2, **NORMALISED, **way.options, **options}
    return FastLoader(data or Pictures(8), **options)


def wanted(data, numbers):
    return normalised(data.images[numbers], MEAN, STD, torch.float32)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_list_of_batches_is_right(way, workers):
    data = Pictures(9)
    batches = list(make(way, data, num_workers=workers))
    assert len(batches) == 5
    for image, label in batches:
        same_bits(image, wanted(data, label))
    assert len({image.data_ptr() for image, _ in batches}) == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_kept_over_epochs_do_not_change(way, workers):
    data = Pictures(8)
    loader = make(way, data, num_workers=workers, shuffle=True)
    kept = [batch for _ in range(3) for batch in loader]
    for image, label in kept:
        same_bits(image, wanted(data, label))
    loader.close()
    del loader
    gc.collect()
    for image, label in kept:
        same_bits(image, wanted(data, label))


# Each keeps less than the tensor, yet enough to see its memory. The second function looks at it.
VIEWS = {
    "slice": (lambda image: image[1:, :, 1], lambda kept: kept),
    "view": (lambda image: image.view(-1), lambda kept: kept),
    "detach": (lambda image: image.detach(), lambda kept: kept),
    "permute": (lambda image: image.permute(0, 2, 3, 1), lambda kept: kept),
    "numpy": (lambda image: image.numpy(), torch.from_numpy),
    "numpy slice": (lambda image: image.numpy()[:, 1], torch.from_numpy),
    "storage": (
        lambda image: image.untyped_storage(),
        lambda kept: torch.tensor([], dtype=torch.float32).set_(kept),
    ),
    "dlpack": (lambda image: torch.from_dlpack(image), lambda kept: kept),
    "parameter": (lambda image: torch.nn.Parameter(image), lambda kept: kept.detach()),
    "graph": (
        lambda image: image.requires_grad_() * image,
        lambda kept: torch.autograd.grad(kept.sum(), kept.grad_fn.next_functions[0][0].variable)[0],
    ),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_memory_is_not_recycled_under_a_view(way, kind):
    keep, look = VIEWS[kind]
    data = Pictures(8)
    loader = make(way, data, shuffle=True)
    kept = []
    for _ in range(2):
        for image, _label in loader:
            copied = image.clone()
            kept.append((keep(image), keep(copied)))
            del image
    for _ in range(4):
        for image, _ in loader:
            image.fill_(-77.0)  # whoever shares this memory sees it
    for view, reference in kept:
        assert torch.equal(look(view), look(reference))


def test_memory_is_recycled_when_nobody_looks(enter_way):
    loader = make(enter_way("cpu"), Pictures(16))
    seen = set()
    for _ in range(4):
        for image, _ in loader:
            seen.add(image.data_ptr())
    stats = loader.stats()["buffers"]
    assert stats["recycled"] > 0 and stats["made"] + stats["recycled"] == 32
    assert len(seen) <= stats["made"] <= 4
    del image
    assert loader.stats()["buffers"]["in_use"] == 0


def test_the_pool_grows_under_who_keeps_everything_and_shrinks_after(enter_way):
    loader = make(enter_way("cpu"), Pictures(40), batch_size=1)
    list(loader)
    usual = loader.stats()["buffers"]["bytes"]
    kept = list(loader)
    stats = loader.stats()["buffers"]
    assert stats["in_use"] == 40 and stats["bytes"] > usual
    del kept
    stats = loader.stats()["buffers"]
    assert stats["in_use"] == 0 and stats["free"] <= 4
    assert stats["bytes"] <= usual


def test_the_smaller_last_batch_needs_no_memory_of_its_own(enter_way):
    loader = make(enter_way("cpu"), Pictures(15, size=(64, 64)), batch_size=8)
    for _ in range(5):
        for _batch in loader:
            pass
    assert loader.stats()["buffers"]["made"] <= 3


@pytest.mark.exhaustive
def test_memory_outlives_the_loader_and_may_die_on_another_thread(way):
    import threading

    data = Pictures(8)
    batches = list(make(way, data))
    gc.collect()
    first = batches.pop(0)
    same_bits(first[0], wanted(data, first[1]))
    done = threading.Thread(target=batches.clear)
    done.start()
    done.join()
    same_bits(first[0], wanted(data, first[1]))


@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_behave_as_any_tensor(way, channels_last):
    data = Pictures(4)
    loader = make(way, data, channels_last=channels_last)
    for image, label in loader:
        right = wanted(data, label)
        assert type(image) is torch.Tensor and image.is_leaf and not image.requires_grad
        same_bits(pickle.loads(pickle.dumps(image)), right)
        same_bits(copy.deepcopy(image), right)
        same_bits(image.clone(), right)
        stored = io.BytesIO()
        torch.save(image, stored)
        stored.seek(0)
        same_bits(torch.load(stored), right)
        assert torch.equal(default_collate([image, image])[1], right)
        image.add_(1).sub_(image.clone())
        assert not image.any()
        image.resize_(1, 2)
        assert image.shape == (1, 2)


def test_share_memory(way):
    data = Pictures(4)
    for image, label in make(way, data):
        image.share_memory_()
        assert image.is_shared()
        same_bits(image, wanted(data, label))


def test_in_place_work_on_a_batch_does_not_reach_the_data_set(way):
    data = Pictures(4)
    before = data.images.clone()
    for image, _ in make(way, data):
        image.zero_()
    assert torch.equal(data.images, before)


class Batches(torch.utils.data.Dataset):
    """Delivered batches as samples of another loader."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index][0]


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_go_through_another_loader(way, workers):
    data = Pictures(4)
    batches = list(make(way, data))
    again = list(DataLoader(Batches(batches), batch_size=None, num_workers=workers))
    for one, (image, _) in zip(again, batches, strict=True):
        same_bits(one, image)


FORKED = """
    import os, torch
    torch.set_num_threads(1)  # OpenMP does not survive a fork
    from exact import normalised
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures

    data = Pictures(4)
    rows = [normalised(data.images[i : i + 1], MEAN, STD, torch.float32) for i in range(4)]
    loader = FastLoader(data, device="cpu", mean=MEAN, std=STD)
    kept = list(loader)

    def right(batches):
        return all(torch.equal(image, rows[label.item()]) for image, label in batches)

    child = os.fork()
    if child == 0:
        good = right(kept)
        for image, _ in kept:
            image.zero_()
        image = None
        kept.clear()
        for _ in range(3):
            good = good and right(loader) and right(list(loader))
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert right(kept)
    print("done")
"""


@pytest.mark.processes
def test_a_forked_child_may_drop_and_make_batches():
    """Its copies of the buffers are its own; the parent's stay."""
    assert run_script(FORKED).stdout == "done\n"
