"""compat.timm's PrefetchLoader and fast_collate beside the installed timm's."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader._core.machine import devices
from fastloader.compat import timm as ours
from support import MEAN, STD, Pictures, expected


def test_attributes(theirs, root):
    mine, their = (
        kind.create_loader(
            kind.ImageDataset(root), 24, 6, is_training=True, color_jitter=0.0,
            device=torch.device("cpu"),
        )
        for kind in (ours, theirs)
    )  # fmt: skip
    for name in ("device", "img_dtype", "is_cuda", "is_npu", "stream", "random_erasing"):
        assert getattr(mine, name) == getattr(their, name), name
    torch.testing.assert_close(mine.mean, their.mean)
    torch.testing.assert_close(mine.std, their.std)
    for name in ("sampler", "batch_sampler", "dataset", "loader"):
        assert (
            type(getattr(mine, name)).__name__.replace("Fast", "Data")
            == type(getattr(their, name)).__name__
        )
    assert mine.dataset is mine.loader.dataset and mine.sampler is mine.loader.sampler
    assert len(mine) == len(their) == 3
    assert mine.loader.drop_last and mine.loader.persistent_workers


@pytest.mark.parametrize("workers", [0, 2])
def test_prefetch_loader_over_any_loader(way, workers):
    """torch's DataLoader, and FastLoader without device, pass after pass."""
    pictures = Pictures(12)
    for kind in (DataLoader, FastLoader):
        inner = kind(
            pictures,
            5,
            num_workers=workers,
            collate_fn=ours.fast_collate,
            persistent_workers=workers > 0,
        )
        loader = ours.PrefetchLoader(inner, MEAN, STD, device="cpu")
        for _ in range(2):
            batches = list(loader)
            assert [type(batch) for batch in batches] == [tuple] * 3
            assert torch.cat([y for _x, y in batches]).tolist() == list(range(12))
            got = torch.cat([x for x, _y in batches]).double()
            torch.testing.assert_close(got, expected(pictures.images), rtol=0, atol=2e-6)
        next(iter(loader))
        loader.close()
        del inner, loader


def test_prefetch_loader_takes_a_loader_that_delivers():
    made = FastLoader(
        Pictures(8, size=(4, 4)), 4, device="cpu", mean=MEAN, std=STD, channels_last=True
    )
    loader = ours.PrefetchLoader(made, device="cpu")
    assert loader._inside is made
    assert next(iter(loader))[0].is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"dtype=torch\.float16"):
        ours.PrefetchLoader(made, device="cpu", fp16=True)


def test_default_device_without_gpu():
    if devices.accelerator_type() is not None:
        pytest.skip("there is an accelerator")
    loader = ours.PrefetchLoader(DataLoader(Pictures(4), 2))
    assert loader.device == torch.device("cpu") and len(list(loader)) == 2
    with pytest.raises(ValueError, match="finds no cuda device"):
        ours.PrefetchLoader(DataLoader(Pictures(4), 2), device=torch.device("cuda"))


def test_an_empty_loader_yields_nothing(way):
    loader = ours.PrefetchLoader(DataLoader(Pictures(4).images[:0], 2), device="cpu")
    assert list(loader) == [] and len(loader) == 0


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        ({"image": torch.zeros(2, 3, 4, 4, dtype=torch.uint8)}, "gave a dict"),
        ((torch.zeros(2, 3, 4, 4, dtype=torch.uint8), 1, 2), "gave a tuple of 3"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "gave a Tensor"),
        ((torch.zeros(2, 3, 4, 4), torch.zeros(2)), "return uint8"),
        ((torch.zeros(2), torch.zeros(2, 3, 4, 4, dtype=torch.uint8)), "no image under 0"),
    ],
    ids=["dict", "three", "tensor", "floats", "swapped"],
)
def test_what_is_no_pair_of_pictures_and_targets(way, batch, what):
    with pytest.raises((TypeError, ValueError), match=what):
        list(ours.PrefetchLoader([batch], device="cpu"))
    with pytest.raises(TypeError, match="must yield batches"):
        ours.PrefetchLoader(3, device="cpu")


def test_masks_are_targets():
    """A target that looks like a picture stays one."""
    masks = torch.full((2, 3, 4, 4), 7, dtype=torch.uint8)
    loader = ours.PrefetchLoader([(torch.zeros_like(masks), masks)], device="cpu")
    assert torch.equal(next(iter(loader))[1], masks)


def test_an_early_break_leaves_nothing(root):
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 4, is_training=True, color_jitter=None, device="cpu"
    )
    for _ in loader:
        break
    assert sum(len(labels) for _images, labels in loader) == 20


# --- collate ------------------------------------------------------------------------------------

SAMPLES = {
    "tensor": (lambda rng: torch.randint(0, 256, (3, 5, 6), dtype=torch.uint8), int),
    "array": (lambda rng: rng.integers(0, 256, (3, 5, 6), dtype=np.uint8), int),
    "splits": (
        lambda rng: tuple(rng.integers(0, 256, (1, 5, 6), dtype=np.uint8) for _ in range(3)), int,
    ),
    "tensor splits": (
        lambda rng: tuple(torch.randint(0, 256, (3, 5, 6), dtype=torch.uint8) for _ in range(2)),
        int,
    ),
    "bool": (lambda rng: torch.zeros(3, 2, 2, dtype=torch.uint8), lambda n: n % 2 == 0),
    "float": (lambda rng: torch.zeros(3, 2, 2, dtype=torch.uint8), lambda n: n / 2),
    "dense": (lambda rng: torch.zeros(3, 2, 2, dtype=torch.uint8), lambda n: torch.rand(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_fast_collate(theirs, name):
    picture, target = SAMPLES[name]
    rng = np.random.default_rng()
    batch = [(picture(rng), target(number), "more") for number in range(4)]
    mine, their = ours.fast_collate(batch), theirs.loader.fast_collate(batch)
    assert type(mine) is tuple
    for one, other in zip(mine, their, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize(
    ("batch", "kind", "what"),
    [
        ([[torch.zeros(3, 2, 2), 1]], TypeError, "got list"),
        ([(torch.zeros(3, 2, 2), 1)], TypeError, "Tensor of torch.float32"),
        ([("a", 1)], TypeError, "got str"),
        ([((torch.zeros(1, dtype=torch.uint8),), 1), ((), 1)], ValueError, r"\[0, 1\]"),
    ],
)
def test_fast_collate_refuses(batch, kind, what):
    with pytest.raises(kind, match=what):
        ours.fast_collate(batch)
