"""Pictures are decoded straight into the ring's slots; what a loader builds lives over its epochs."""

import gc
import random
import threading
import weakref

import pytest
import torch
from image_source import image_source
from numbered_pictures import COUNT
from pictures import import_torchvision, plain_folder, script
from torch.utils.data import ConcatDataset, Subset

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.delivery import engine
from fastloader._core.delivery.engine import RingEpoch
from fastloader.datasets import ImageFolder
from support import HANG, MEAN, STD, eventually, require_hooks, resident_bytes, same


def epoch(loader, seed=1):
    torch.manual_seed(seed)
    return [[images.clone(), labels.clone()] for images, labels in loader]


# --- into the slots -----------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [None, 1, 2, 5])
@pytest.mark.parametrize("mean", [None, MEAN])
def test_pixels_are_made_in_their_slot(crops, twin, enter_way, depth, mean):
    loader = FastLoader(crops, 4, shuffle=True, num_workers=2, device="cpu", mean=mean, depth=depth)
    got = [epoch(loader, seed) for seed in range(3)]
    stats = loader.stats()
    assert stats["ring"]["copied_bytes"] == 3 * COUNT * 8  # the labels
    assert stats["ring"]["filled"] == 3 * 6
    assert stats["images"]["buffers"]["made"] == 0
    enter_way("cpu")
    same(got, [epoch(FastLoader(crops, 4, shuffle=True, mean=mean), seed) for seed in range(3)])


def test_epochs_that_end_early_spoil_nothing(crops, twin, monkeypatch):
    """Slots that threads still write into are not given to the next epoch."""
    require_hooks()
    reference = epoch(FastLoader(crops, 4, shuffle=True, mean=MEAN))
    rng = random.Random(1)
    monkeypatch.setattr(engine, "_twin_options", {"twin_delay_seed": 7})
    loader = FastLoader(crops, 4, shuffle=True, num_workers=3, device="cpu", mean=MEAN)
    for _ in range(30):
        iterator = iter(loader)
        for _ in range(rng.randrange(5)):
            next(iterator)
        if rng.random() < 0.5:
            iterator.close()
        del iterator
        if rng.random() < 0.2:
            loader.close()
        if rng.random() < 0.3:
            same(epoch(loader), reference)
    same(epoch(loader), reference)


def test_a_batch_that_is_refused_is_told_in_its_place(crops, twin, monkeypatch):
    """The slot it was made in is its error's."""
    # Which is refused with the loader otherwise, as long as the pictures are of a known dataset.
    monkeypatch.setattr(fastloader.loader, "check_picture_arguments", lambda loader: None)
    loader = FastLoader(crops, 10, num_workers=2, device="cpu", mean=MEAN, image_key=1)
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(3):
            with pytest.raises(ValueError, match="no image under 1"):
                next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


def test_batches_too_large_for_a_slot(crops, twin, monkeypatch):
    monkeypatch.setattr(engine, "max_slot_bytes", lambda depth: 5000)
    batches = [[0, 1], list(range(20)), [2, 3], [99], list(range(21)), [4]]
    iterator = iter(FastLoader(crops, batch_sampler=batches, device="cpu", mean=MEAN))
    for batch in batches:
        if len(batch) > 2:
            with pytest.raises((ValueError, fastloader.Error), match="at most 5000"):
                next(iterator)
        elif batch == [99]:
            with pytest.raises(IndexError):
                next(iterator)
        else:
            assert next(iterator)[1].tolist() == batch
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_error_that_is_kept_keeps_no_slot(crops, twin):
    """Its traceback holds frames, and frames hold what they worked on."""
    batches = [[99], [0, 1], [2, 3], [4], [5]]
    loader = FastLoader(crops, batch_sampler=batches, device="cpu", mean=MEAN)
    kept = []
    for _ in range(3):
        iterator = iter(loader)
        with pytest.raises(IndexError) as raised:
            next(iterator)
        kept.append(raised.value)
        iterator.close()
    iterator = iter(loader)
    with pytest.raises(IndexError):
        next(iterator)
    assert [labels.tolist() for _, labels in iterator] == batches[1:]


def test_an_error_that_is_kept_keeps_no_batch_that_came_too_late(crops, twin, monkeypatch):
    """The pump has the next batch in its hands when the epoch ends, and cannot put it any more."""
    put_batch = RingEpoch.put_batch
    in_hand = threading.Event()

    def late(epoch, batch):
        in_hand.set()
        eventually(lambda: epoch.over, lambda: "the epoch is not over", seconds=HANG)
        return put_batch(epoch, batch)

    batches = [[99], [0, 1], [2, 3]]
    loader = FastLoader(crops, batch_sampler=batches, device="cpu", mean=MEAN, depth=2)
    kept = []
    with monkeypatch.context() as patched:
        patched.setattr(RingEpoch, "put_batch", late)
        for _ in range(2):
            iterator = iter(loader)
            with pytest.raises(IndexError) as raised:
                next(iterator)
            kept.append(raised.value)
            assert in_hand.wait(HANG)
            in_hand.clear()
            iterator.close()
            iterator._epoch.pump.join(HANG)  # then the next epoch has the same ring
    iterator = iter(loader)
    with pytest.raises(IndexError):
        next(iterator)
    assert [labels.tolist() for _, labels in iterator] == batches[1:]


def test_slots_grow_while_others_are_in_the_making(crops, twin):
    rng = random.Random(2)
    batches = [[rng.randrange(COUNT) for _ in range(rng.randint(1, 40))] for _ in range(30)]
    loader = FastLoader(crops, batch_sampler=batches, num_workers=2, device="cpu", mean=MEAN)
    got = epoch(loader)
    assert [labels.tolist() for _, labels in got] == batches
    assert loader.stats()["ring"]["slot_growths"] > 0
    same(got, epoch(FastLoader(crops, batch_sampler=batches, mean=MEAN)))


# --- over the epochs ----------------------------------------------------------------------------


def test_nothing_is_built_anew(crops, device):
    view = ConcatDataset([Subset(crops, [3, 1, 2]), crops])
    for dataset in (crops, Subset(crops, range(7)), view):
        loader = FastLoader(dataset, 4, mean=MEAN, **device)
        list(loader)
        source = image_source(loader).decoder
        for _ in range(3):
            list(loader)
            assert image_source(loader).decoder is source


def test_what_changes_is_seen(root, device):
    dataset = ImageFolder(root, T.Resize((8, 9)))
    loader = FastLoader(dataset, 5, **device)

    def seen():
        batches = [[images.clone(), labels] for images, labels in loader]
        same(batches, [list(batch) for batch in FastLoader(dataset, 5)])
        return batches[0][0].shape[2:]

    assert seen() == (8, 9)
    dataset.transform.size = (7, 6)  # the same object, another size
    assert seen() == (7, 6)
    dataset.transform = T.Resize((5, 5))
    assert seen() == (5, 5)


def test_a_subset_shuffled_in_place_is_seen(crops, device):
    subset = Subset(crops, list(range(10)))
    both = ConcatDataset([subset, subset])
    for dataset, times in ((subset, 1), (both, 2)):
        loader = FastLoader(dataset, 40, **device)
        for _ in range(3):
            random.Random(3).shuffle(subset.indices)
            assert next(iter(loader))[1].tolist() == times * subset.indices


def test_torchvision_samples_changed_in_place_are_seen(root, device):
    torchvision = import_torchvision()
    chain = torchvision.transforms.Compose(
        [torchvision.transforms.Resize((9, 8)), torchvision.transforms.PILToTensor()]
    )
    dataset = torchvision.datasets.ImageFolder(root, chain)
    loader = FastLoader(dataset, 40, **device)

    def seen():
        assert loader.plan().startswith("native images")
        images, labels = next(iter(loader))
        wanted, targets = next(iter(FastLoader(dataset, 40, native=False)))
        assert torch.equal(images, wanted) and torch.equal(labels, targets)

    seen()
    source = image_source(loader).decoder
    seen()
    assert image_source(loader).decoder is source
    random.Random(4).shuffle(dataset.samples)
    seen()
    dataset.samples[3] = (dataset.samples[5][0], 77)
    seen()
    del dataset.samples[1:3]
    seen()
    source = image_source(loader).decoder
    dataset.samples = list(dataset.samples)  # equal
    seen()
    assert image_source(loader).decoder is source


def test_a_data_set_is_not_kept_alive(root):
    dataset = ImageFolder(root, T.Resize((8, 9)))
    subset = Subset(dataset, [1, 2])
    list(FastLoader(subset, 2))
    from fastloader._core.sources.reading import last_time

    assert subset in last_time
    gone = weakref.ref(subset)
    del subset
    gc.collect()
    assert gone() is None


def test_memory_is_constant_after_the_first_epoch(tmp_path, device):
    root = str(plain_folder(tmp_path, 24, size=(120, 90)))
    chain = T.Compose([T.RandomResizedCrop(128), T.RandomHorizontalFlip()])
    loader = FastLoader(
        ImageFolder(root, chain), 8, shuffle=True, num_workers=2, mean=MEAN, std=STD, **device
    )

    def run(epochs):
        for number in range(epochs):
            for _batch in loader:
                if number % 5 == 4:
                    break
        stats = loader.stats()
        kept = {
            "scratch": stats["images"]["scratch_bytes"],
            "buffers": stats["images"]["buffers"]["bytes"],
            "ring": stats.get("ring", {}).get("ring_bytes"),
        }
        return kept, resident_bytes()

    run(6)
    kept, resident = run(4)
    assert kept["scratch"] > 0
    again, later = run(40)
    assert again["ring"] == kept["ring"]
    block = 8 * 3 * 128 * 128 * 4
    assert again["buffers"] <= kept["buffers"] + 2 * block  # as many as were in use at once
    # A thread may only now have met the largest picture.
    assert again["scratch"] <= 1.5 * kept["scratch"]
    assert later - resident < 12 << 20  # forty epochs of 24 batches of 0.4 or 1.6 MB


@pytest.mark.processes
def test_a_forked_child_builds_its_own(root):
    source = """
        import os, sys
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        loader = FastLoader(ImageFolder(sys.argv[1], T.Resize((9, 8))), 4, device="cpu")
        wanted = [labels.tolist() for _, labels in loader]
        *_others, images = loader._runtime.sources
        mine = images.decoder
        child = os.fork()
        if child == 0:
            got = [labels.tolist() for _, labels in loader]
            os._exit(0 if got == wanted and images.decoder is not mine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [labels.tolist() for _, labels in loader] == wanted
        assert images.decoder is mine
    """
    for backend in ("", "host"):
        script(source, root, env={"FASTLOADER_BACKEND": backend} if backend else {}, timeout=HANG)
