"""Every element of the memory offered for a batch is written, and not one byte beside it."""

import pytest
import torch

from exact import normalised, same_bits
from fastloader import DevicePrefetcher
from fastloader._core.delivery import engine as ring_engine
from support import MEAN, STD, random_images

POISON = 0xA5
FENCE = 512  # bytes; keeps the alignment that torch's memory has


@pytest.fixture
def fences(gpu, monkeypatch):
    """Outputs and staging buffers lie between fences, in poisoned memory. Returns the list of
    (memory, bytes between the fences) to look at afterwards."""
    made = []
    make_credit = ring_engine.Engine.make_credit

    def fenced(tensor):
        inside = tensor.numel() * tensor.element_size()
        memory = gpu.empty(inside + 2 * FENCE).fill_(POISON)
        made.append((memory, inside))
        flat = memory[FENCE : FENCE + inside].view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())

    def make_fenced_credit(engine, plan):
        credit = make_credit(engine, plan)
        credit.outputs = [fenced(each) for each in credit.outputs]
        credit.staging = None if credit.staging is None else fenced(credit.staging)
        return credit

    monkeypatch.setattr(ring_engine.Engine, "make_credit", make_fenced_credit)
    return made


def whole(fences):
    for memory, inside in fences:
        memory = memory.cpu()
        assert (memory[:FENCE] == POISON).all(), f"written before an output of {inside} bytes"
        assert (memory[FENCE + inside :] == POISON).all(), f"written beyond one of {inside} bytes"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_images(gpu, fences, dtype, channels, channels_last):
    mean, std = (0.485, 0.456, 0.406, 0.5)[:channels], (0.229, 0.224, 0.225, 0.3)[:channels]
    options = {"mean": mean, "std": std, "dtype": dtype, "channels_last": channels_last}
    for n, h, w in [(1, 1, 1), (2, 3, 5), (3, 7, 33), (1, 17, 255), (2, 32, 32), (3, 129, 127)]:
        images = random_images(h * w + n, n, channels, h, w)
        nhwc = [images.permute(0, 2, 3, 1).contiguous()] if h != channels else []
        for batch in [images, images.to(memory_format=torch.channels_last), *nhwc]:
            (out,) = list(DevicePrefetcher([batch], gpu.name, **options))
            same_bits(out.cpu(), normalised(images, mean, std, dtype))
    assert len(fences) >= 2 * 17
    whole(fences)


def test_other_leaves(gpu, fences):
    """Odd sizes next to each other in one slot."""
    batch = [random_images(1, 2, 3, 5, 7)]
    batch += [torch.arange(n, dtype=torch.uint8) for n in (1, 3, 15, 16, 17, 1023)]
    batch += [torch.randn(n, dtype=torch.float64) for n in (1, 5)]
    for options in ({}, {"mean": MEAN, "std": STD, "image_key": 0}):
        for out in DevicePrefetcher([batch] * 4, gpu.name, **options):
            for got, sent in list(zip(out, batch, strict=True))[1:]:
                assert torch.equal(got.cpu(), sent)
    assert fences
    whole(fences)


@pytest.mark.parametrize("channels_last", [False, True])
def test_augmented_images(gpu, fences, channels_last):
    from augmenting import ERASINGS, MIXINGS, batches_of, delivered

    from fastloader._core.batch.augmentation import Augmentation

    for size in ((33, 31), (8, 8), (1, 5)):
        augmentation = Augmentation(ERASINGS["pixel"], MIXINGS["batch"])
        options = {"device": gpu.name, "channels_last": channels_last}
        for images, _targets in delivered(batches_of(3, 8, *size), augmentation, **options):
            assert images.isfinite().all()
    whole(fences)
